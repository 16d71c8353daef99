// Tells Python how the structs of a launch lie in memory. A struct lists its fields once with MONO_FIELDS; the compiler
// of each build writes their offsets into the data symbol `mono_layout`, which Python reads from the code object or
// shared object.
#pragma once

#include "mono/global.h"

namespace mono {

// A counter or flag with a cache line of its own: pollers of one never slow or deadlock the writers of another.
struct alignas(kCacheLineBytes) Line {
  u32 value;
};

constexpr u32 kNotAPhase = 0xffffffff;
constexpr u32 kNameBytes = 24;
constexpr u32 kTypeBytes = 8;

// One field of one struct; names are padded with zeros.
struct LayoutRow {
  char record[kNameBytes];
  char field[kNameBytes];
  char type[kTypeBytes];
  u32 offset;
  // elements of an array field, 1 otherwise
  u32 count;
  // bytes of the whole struct
  u32 record_bytes;
  // what a program entry calls the phase whose arguments these are, or kNotAPhase
  u32 phase;
};

namespace detail {

template <class T>
struct FieldType;
template <>
struct FieldType<u32> {
  static constexpr char kName[] = "u32";
};
template <>
struct FieldType<u64> {
  static constexpr char kName[] = "u64";
};
template <>
struct FieldType<i64> {
  static constexpr char kName[] = "i64";
};
template <>
struct FieldType<f32> {
  static constexpr char kName[] = "f32";
};
template <>
struct FieldType<Line> {
  static constexpr char kName[] = "line";
};
template <class T>
struct FieldType<Global<T>> {
  static constexpr char kName[] = "pointer";
};

template <class T>
struct Elements {
  using Type = T;
  static constexpr u32 kCount = 1;
};
template <class T, u64 kLength>
struct Elements<T[kLength]> {
  using Type = T;
  static constexpr u32 kCount = kLength;
};

template <u32 kBytes, u64 kLength>
constexpr void copy_name(char (&target)[kBytes], const char (&source)[kLength]) {
  static_assert(kLength <= kBytes, "a record, field or type name is too long for the layout table");
  for (u64 i = 0; i < kLength; ++i) target[i] = source[i];
}

}  // namespace detail

template <u32 kRows>
struct LayoutTable {
  LayoutRow rows[kRows];
};

// Fills table rows from the record named `kName`, whose struct is T.
template <class T, u64 kLength>
constexpr u32 describe(LayoutRow* rows, const char (&record)[kLength], u32 phase) {
  u32 used = 0;
  T::for_each_field([&](const auto& field, const auto& type, u32 offset, u32 count) {
    LayoutRow& row = rows[used++];
    detail::copy_name(row.record, record);
    detail::copy_name(row.field, field);
    detail::copy_name(row.type, type);
    row.offset = offset;
    row.count = count;
    row.record_bytes = sizeof(T);
    row.phase = phase;
  });
  return used;
}

}  // namespace mono

#define MONO_EXPAND(...) MONO_EXPAND_3(MONO_EXPAND_3(MONO_EXPAND_3(__VA_ARGS__)))
#define MONO_EXPAND_3(...) MONO_EXPAND_2(MONO_EXPAND_2(MONO_EXPAND_2(__VA_ARGS__)))
#define MONO_EXPAND_2(...) MONO_EXPAND_1(MONO_EXPAND_1(MONO_EXPAND_1(__VA_ARGS__)))
#define MONO_EXPAND_1(...) __VA_ARGS__
#define MONO_PARENTHESES ()
#define MONO_FOR_EACH(macro, type, ...) __VA_OPT__(MONO_EXPAND(MONO_FOR_EACH_STEP(macro, type, __VA_ARGS__)))
#define MONO_FOR_EACH_STEP(macro, type, first, ...) \
  macro(type, first) __VA_OPT__(MONO_FOR_EACH_AGAIN MONO_PARENTHESES(macro, type, __VA_ARGS__))
#define MONO_FOR_EACH_AGAIN() MONO_FOR_EACH_STEP

#define MONO_VISIT_FIELD(type, field)                                                                             \
  visit(#field, ::mono::detail::FieldType<typename ::mono::detail::Elements<decltype(type::field)>::Type>::kName, \
        static_cast<::mono::u32>(__builtin_offsetof(type, field)),                                                \
        ::mono::detail::Elements<decltype(type::field)>::kCount);
#define MONO_COUNT_FIELD(type, field) +1

#define MONO_FIELDS(Struct, ...)                                                                 \
  static constexpr ::mono::u32 kFields = 0 MONO_FOR_EACH(MONO_COUNT_FIELD, Struct, __VA_ARGS__); \
  template <class Visit>                                                                         \
  static constexpr void for_each_field(Visit visit) {                                            \
    MONO_CHECK_FIELD_COUNT(Struct)                                                               \
    MONO_FOR_EACH(MONO_VISIT_FIELD, Struct, __VA_ARGS__)                                         \
  }

#if __has_builtin(__builtin_structured_binding_size)
#define MONO_CHECK_FIELD_COUNT(Struct)                                \
  static_assert(__builtin_structured_binding_size(Struct) == kFields, \
                "MONO_FIELDS does not list every field of " #Struct);
#else
#define MONO_CHECK_FIELD_COUNT(Struct)
#endif

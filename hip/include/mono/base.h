// Types and attributes that every other header builds on.
//
// A kernel source is compiled for an AMD GPU (__AMDGCN__ is defined) or for the host, where the executor in hip/host
// runs it.
#pragma once

#if defined(__AMDGCN__)
#define MONO_FN __attribute__((device, always_inline)) inline
#else
#define MONO_FN inline
#endif

#define MONO_UNROLL _Pragma("unroll")

namespace mono {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long;
using i32 = int;
using i64 = long;
using f32 = float;
// bits, not the compiler's own type: on the host that one computes through fp32 and rounds at every touch
enum class bf16 : u16 {};

template <class T, int kCount>
using Vec = T __attribute__((ext_vector_type(kCount)));

using f32x4 = Vec<f32, 4>;
using bf16x2 = Vec<u16, 2>;
using bf16x4 = Vec<u16, 4>;
using bf16x8 = Vec<u16, 8>;
using u32x4 = Vec<u32, 4>;
using i32x8 = Vec<i32, 8>;

constexpr u32 kWaveLanes = 64;
// one wave a SIMD: a workgroup fills its compute unit and each lane may hold 512 registers
constexpr u32 kWorkgroupThreads = 256;
constexpr u32 kWorkgroupWaves = kWorkgroupThreads / kWaveLanes;
// LDS of a compute unit
#if defined(__gfx942__)
constexpr u32 kLdsBytes = 64 * 1024;
#else
constexpr u32 kLdsBytes = 160 * 1024;
#endif
// the unit in which the caches of a compute unit, an XCD and the memory side trade data
constexpr u32 kCacheLineBytes = 128;
// of the constant-rate clock, which is the same on every rank of a machine
constexpr u64 kClockTicksPerSecond = 100'000'000;

// bit_cast by value: clang 22 reads element 0 when the source is a vector element in place
template <class To, class From>
MONO_FN To bits_of(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

// What a vector of T has for elements.
template <class T>
struct VecElement {
  using Type = T;
};
template <class T>
struct VecElement<const T> : VecElement<T> {};
template <>
struct VecElement<bf16> {
  using Type = u16;
};

// Whether a counter that only grows, modulo 2^32, has come to `epoch`.
MONO_FN constexpr bool epoch_reached(u32 seen, u32 epoch) { return static_cast<i32>(seen - epoch) >= 0; }

template <class T>
MONO_FN constexpr T min(T a, T b) {
  return b < a ? b : a;
}

template <class T>
MONO_FN constexpr T max(T a, T b) {
  return a < b ? b : a;
}

}  // namespace mono

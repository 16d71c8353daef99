// Pointers into device memory and the ways to access it.
//
// A pointer that is itself loaded from memory has no address space, and every access through it would become a flat
// instruction; a Global casts it back. Indices count elements and are 64-bit: a pool of states passes 2^31 elements
// with a few thousand slots.
#pragma once

#include "mono/thread.h"

namespace mono {

#if !defined(__AMDGCN__)
using host::Access;
#endif

template <class T>
struct Global {
  T* address;

#if defined(__AMDGCN__)

  template <class U>
  using Pointer = U __attribute__((address_space(1)))*;

  // cached read
  MONO_FN T load(i64 index) const { return at<T>(index); }

  // cached read of kCount consecutive elements, aligned to their size
  template <int kCount>
  MONO_FN auto load_vec(i64 index) const {
    return at<Vec<typename VecElement<T>::Type, kCount>>(index);
  }

  // read of data that this step does not touch again (weights, states); does not displace cached data
  template <int kCount>
  MONO_FN auto stream(i64 index) const {
    return __builtin_nontemporal_load(&at<Vec<typename VecElement<T>::Type, kCount>>(index));
  }

  // Reads for the lanes in which `wanted` holds. A branch around loads would make the compiler wait for every load in
  // flight, so the other lanes read too: their index has to be legal, preferably that of a lane that wants the data,
  // and their value is unspecified.
  template <int kCount>
  MONO_FN auto load_vec_if([[maybe_unused]] bool wanted, i64 index) const {
    return load_vec<kCount>(index);
  }

  template <int kCount>
  MONO_FN auto stream_if([[maybe_unused]] bool wanted, i64 index) const {
    return stream<kCount>(index);
  }

  // write of data that only this thread, or a later launch, reads
  MONO_FN void store(i64 index, T value) const { at<T>(index) = value; }

  template <class Vector>
  MONO_FN void store_vec(i64 index, Vector value) const {
    at<Vector>(index) = value;
  }

  // write of data that other workgroups read after the next grid barrier: written through to where every XCD sees it
  template <class Word>
  MONO_FN void publish(i64 index, Word value) const {
    static_assert(sizeof(Word) <= 8);
    __hip_atomic_store(&at<Word>(index), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  }

#else

  T load(i64 index) const { return read<T>(index, Access::kCached); }

  template <int kCount>
  auto load_vec(i64 index) const {
    return read<Vec<typename VecElement<T>::Type, kCount>>(index, Access::kCached);
  }

  template <int kCount>
  auto stream(i64 index) const {
    return read<Vec<typename VecElement<T>::Type, kCount>>(index, Access::kStreamed);
  }

  template <int kCount>
  auto load_vec_if(bool wanted, i64 index) const {
    return wanted ? load_vec<kCount>(index) : Vec<typename VecElement<T>::Type, kCount>{};
  }

  template <int kCount>
  auto stream_if(bool wanted, i64 index) const {
    return wanted ? stream<kCount>(index) : Vec<typename VecElement<T>::Type, kCount>{};
  }

  void store(i64 index, T value) const { write(index, value); }

  template <class Vector>
  void store_vec(i64 index, Vector value) const {
    write(index, value);
  }

  template <class Word>
  void publish(i64 index, Word value) const {
    static_assert(sizeof(Word) <= 8);
    write(index, value);
  }

#endif

  MONO_FN Global operator+(i64 elements) const { return {address + elements}; }

 private:
#if defined(__AMDGCN__)
  template <class U, class Base>
  struct SameConst {
    using type = U;
  };
  template <class U, class Base>
  struct SameConst<U, const Base> {
    using type = const U;
  };

  template <class U>
      MONO_FN typename SameConst<U, T>::type __attribute__((address_space(1))) & at(i64 index) const {
    using Target = typename SameConst<U, T>::type;
    return *reinterpret_cast<Pointer<Target>>((Pointer<T>)(address) + index);
  }
#else
  template <class U>
  U read(i64 index, Access access) const {
    host::count_read(address + index, sizeof(U), access);
    return *reinterpret_cast<const U*>(address + index);
  }

  template <class U>
  void write(i64 index, U value) const {
    host::count_write(sizeof(U));
    *reinterpret_cast<U*>(address + index) = value;
  }
#endif
};

// A struct read through the scalar cache: only for memory that does not change while the launch runs.
template <class T>
MONO_FN T load_constant(const T* address) {
#if defined(__AMDGCN__)
  using Word = const u32 __attribute__((address_space(4)));
  u32 words[sizeof(T) / sizeof(u32)];
  MONO_UNROLL
  for (u32 i = 0; i < sizeof(T) / sizeof(u32); ++i) words[i] = ((Word*)address)[i];
  return __builtin_bit_cast(T, words);
#else
  return *address;
#endif
}

}  // namespace mono

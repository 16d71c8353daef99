// Accesses to device memory: an access that can be made to leave its buffer, atomics of every kind, and accesses by
// byte and half-word.
#include "device.h"

// y[i] = x[i] for i < size, and i = size too if built with ONE_TOO_FAR
KERNEL copy(const u32* x, u32* y, u32 size) {
  const u32 i = workgroup() * 256 + thread();
#if defined(ONE_TOO_FAR)
  if (i <= size) y[i] = x[i < size ? i : 0];
#else
  if (i < size) y[i] = x[i];
#endif
}

// rows of a pool: the byte offset of a slot passes 32 bits
KERNEL pool_row(const u32* pool, u32* y, i32 slot, u32 row_words) {
#if defined(OFFSET_32_BITS)
  y[thread()] = pool[static_cast<u32>(slot) * row_words + thread()];
#else
  y[thread()] = pool[static_cast<u64>(slot) * row_words + thread()];
#endif
}

KERNEL atomics(u32* words, u64* wide, f32* sum, f64* sum_wide, const u32* in, u32* old) {
  const u32 x = in[thread()];
  constexpr int kScope = __HIP_MEMORY_SCOPE_AGENT;
  __hip_atomic_fetch_add(words + 0, x, __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_sub(words + 1, x, __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_and(words + 2, x, __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_or(words + 3, x, __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_xor(words + 4, x, __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_min(words + 5, x, __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_max(words + 6, x, __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_min(reinterpret_cast<i32*>(words + 7), static_cast<i32>(x), __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_max(reinterpret_cast<i32*>(words + 8), static_cast<i32>(x), __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_add(wide, static_cast<u64>(x) << 20, __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_max(wide + 1, static_cast<u64>(x) << 20, __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_add(sum, static_cast<f32>(x & 0xff), __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_add(sum_wide, static_cast<f64>(x), __ATOMIC_RELAXED, kScope);
  // one thread of each wave after the other takes a ticket by compare and exchange
  u32 ticket = 0;
  while (!__hip_atomic_compare_exchange_strong(words + 9, &ticket, ticket + 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                               kScope)) {
  }
  old[ticket] = thread();
  old[256 + thread()] = __hip_atomic_exchange(words + 10, thread(), __ATOMIC_RELAXED, kScope);
}

KERNEL narrow(const u8* in, u8* out) {
  const u32 i = thread();
  out[i] = in[i] + 1;
  reinterpret_cast<u16*>(out + 256)[i] = reinterpret_cast<const u16*>(in)[i] ^ 0xff00;
  reinterpret_cast<i32*>(out + 768)[i] = static_cast<i32>(reinterpret_cast<const signed char*>(in)[i]);
  reinterpret_cast<i32*>(out + 1792)[i] = static_cast<i32>(reinterpret_cast<const short*>(in)[i]);
}

KERNEL copy_wide(const Vec<u32, 4>* in, Vec<u32, 4>* out) { out[thread()] = in[255 - thread()]; }

// direct loads into LDS, one word and four words a lane
KERNEL through_lds(const u32* in, u32* out) {
  LDS u32 words[256];
  LDS Vec<u32, 4> quads[64];
  using Global = void __attribute__((address_space(1)))*;
  using Shared = void __attribute__((address_space(3)))*;
  const u32 wave = __builtin_amdgcn_readfirstlane(thread() / 64);
  __builtin_amdgcn_global_load_lds((Global)(in + 255 - thread()), (Shared)(words + 64 * wave), 4, 0, 0);
  if (wave == 0) __builtin_amdgcn_global_load_lds((Global)(in + 4 * (63 - thread())), (Shared)quads, 16, 0, 0);
  __builtin_amdgcn_s_waitcnt(0);
  barrier();
  out[thread()] = words[thread()];
  if (wave == 0) reinterpret_cast<Vec<u32, 4>*>(out + 256)[thread()] = quads[thread()];
}

// a raw buffer of `bytes` bytes: what is beyond reads 0 and is not written
KERNEL buffer_copy(const u32* x, u32* y, u32 bytes) {
  const auto from = __builtin_amdgcn_make_buffer_rsrc((void*)x, 0, bytes, 0x00027000);
  const auto to = __builtin_amdgcn_make_buffer_rsrc((void*)y, 0, bytes, 0x00027000);
  const auto value = __builtin_amdgcn_raw_buffer_load_b64(from, thread() * 8, 0, 0);
  __builtin_amdgcn_raw_buffer_store_b64(value + 1, to, thread() * 8, 0, 0);
}

// a table in the code object, whose address is relative to the program counter
KERNEL table_lookup(const u32* index, u32* out) {
  constexpr u32 kPrimes[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};
  out[thread()] = kPrimes[index[thread()] % 16];
}

KERNEL trap(const u32* x) {
  if (x[thread()] == 7) __builtin_trap();
}

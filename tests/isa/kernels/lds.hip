// LDS: a tree reduction whose barrier can be left out, and atomics.
#include "device.h"

constexpr u32 kThreads = 256;

DEVICE void exchange_barrier() {
#if !defined(WITHOUT_BARRIER)
  barrier();
#endif
}

KERNEL tree_sum(const f32* in, f32* out) {
  LDS f32 part[kThreads];
  part[thread()] = in[workgroup() * kThreads + thread()];
  barrier();
  for (u32 distance = kThreads / 2; distance > 0; distance /= 2) {
    if (thread() < distance) part[thread()] += part[thread() + distance];
    exchange_barrier();
  }
  if (thread() == 0) out[workgroup()] = part[0];
}

// each wave reverses the block of another wave through LDS
KERNEL reverse(const u32* in, u32* out) {
  LDS u32 block[kThreads];
  block[thread()] = in[workgroup() * kThreads + thread()];
  exchange_barrier();
  out[workgroup() * kThreads + thread()] = block[kThreads - 1 - thread()];
}

KERNEL counts(const u32* in, u32* out, f32* sum) {
  LDS u32 bins[64];
  LDS f32 total;
  LDS u32 lowest, ticket, chain;
  if (thread() < 64) bins[thread()] = 0;
  if (thread() == 0) total = 0, lowest = ~0u, ticket = 0, chain = 0;
  barrier();
  const u32 x = in[thread()];
  constexpr int kScope = __HIP_MEMORY_SCOPE_WORKGROUP;
  __hip_atomic_fetch_add(&bins[x % 64], 1, __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_add(&total, static_cast<f32>(x), __ATOMIC_RELAXED, kScope);
  __hip_atomic_fetch_min(&lowest, x, __ATOMIC_RELAXED, kScope);
  // a second ticket, by compare and exchange
  u32 place = 0;
  while (!__hip_atomic_compare_exchange_strong(&chain, &place, place + 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED, kScope)) {
  }
  const u32 mine = __hip_atomic_fetch_add(&ticket, 1, __ATOMIC_RELAXED, kScope);
  barrier();
  if (thread() < 64) out[thread()] = bins[thread()];
  out[64 + mine] = thread();
  out[64 + kThreads + place] = thread();
  if (thread() == 0) out[64 + 2 * kThreads] = lowest, *sum = total;
}

// stores of each width at byte offsets that are not multiples of it, read back as words
KERNEL narrow(const u32* in, u32* out) {
  LDS u8 bytes[kThreads * 16];
  u8* mine = bytes + thread() * 16;
  const u32 x = in[thread()];
  *reinterpret_cast<Vec<u32, 4>*>(mine) = Vec<u32, 4>{0, 0, 0, 0};
  mine[1] = x;
  *reinterpret_cast<u16*>(mine + 2) = x >> 16;
  *reinterpret_cast<u64*>(mine + 8) = static_cast<u64>(x) * x;
  barrier();
  const u8* other = bytes + (thread() ^ 64) * 16;
  out[4 * thread()] = *reinterpret_cast<const u32*>(other);
  out[4 * thread() + 1] = static_cast<signed char>(other[3]);
  out[4 * thread() + 2] = *reinterpret_cast<const short*>(other + 8);
  out[4 * thread() + 3] = other[15];
}

// halves and bytes of words that come from different places
KERNEL halves(const u32* in, u32* out) {
  LDS u16 words[kThreads];
  LDS u8 bytes[kThreads];
  words[thread()] = in[thread()] >> 8;
  bytes[thread()] = in[thread()];
  barrier();
  const u32 i = thread() ^ 5, j = thread() ^ 70;
  using Pair = Vec<u16, 2>;
  out[3 * thread()] = __builtin_bit_cast(u32, Pair{words[i], words[j]});
  out[3 * thread() + 1] = __builtin_bit_cast(u32, Pair{bytes[i], bytes[j]});
  using Signed = Vec<short, 2>;
  const auto* signed_bytes = reinterpret_cast<const signed char*>(bytes);
  out[3 * thread() + 2] = __builtin_bit_cast(u32, Signed{signed_bytes[i], signed_bytes[j]});
}

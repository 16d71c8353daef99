// A persistent kernel: workgroups of one rank meet at a grid barrier, ranks exchange data and flags through each
// other's memory.
#include "device.h"

constexpr u32 kMaxRanks = 8;
// counters and flags on their own cache lines
constexpr u32 kLineWords = 32;

struct Rank {
  u32* counter;
  u32* flags;
  u32* partial;
  u32* inbox;
};

struct Args {
  Rank ranks[kMaxRanks];
  u32* result;
  u32* visits;
  u32 rank, rank_count, workgroups, iterations;
};

template <int kScope>
DEVICE void wait_for(u32* word, u32 target) {
  while (__hip_atomic_load(word, __ATOMIC_RELAXED, kScope) < target) __builtin_amdgcn_s_sleep(1);
  (void)__hip_atomic_load(word, __ATOMIC_ACQUIRE, kScope);
}

DEVICE void grid_barrier(u32* counter, u32 arrivals) {
  barrier();
  if (thread() == 0) {
    __hip_atomic_fetch_add(counter, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    wait_for<__HIP_MEMORY_SCOPE_AGENT>(counter, arrivals);
  }
  barrier();
}

KERNEL persistent(Args args) {
  LDS u32 sum;
  const Rank& self = args.ranks[args.rank];
  u32 epoch = 0;
  u32 state = 1 + args.rank;
  for (u32 i = 0; i < args.iterations; ++i) {
    // every workgroup writes its part, then reads everybody's
    if (thread() == 0) self.partial[workgroup()] = state * (workgroup() + 1) + i;
    grid_barrier(self.counter, ++epoch * args.workgroups);
    if (thread() == 0) sum = 0;
    barrier();
    for (u32 w = thread(); w < args.workgroups; w += 256)
      __hip_atomic_fetch_add(&sum, self.partial[w], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    barrier();
    // workgroup 0 sends the sum to every rank, data before flag
    if (workgroup() == 0 && thread() < args.rank_count) {
      const Rank& peer = args.ranks[thread()];
      __hip_atomic_store(&peer.inbox[(i % 2) * kMaxRanks + args.rank], sum, __ATOMIC_RELAXED,
                         __HIP_MEMORY_SCOPE_SYSTEM);
      __hip_atomic_store(&peer.flags[args.rank * kLineWords], i + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
      wait_for<__HIP_MEMORY_SCOPE_SYSTEM>(&self.flags[thread() * kLineWords], i + 1);
    }
    grid_barrier(self.counter, ++epoch * args.workgroups);
    state = 0;
    for (u32 r = 0; r < args.rank_count; ++r) state = state * 31 + self.inbox[(i % 2) * kMaxRanks + r];
  }
  args.result[workgroup() * 256 + thread()] = state;
  __hip_atomic_fetch_add(args.visits, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// The workgroup barrier. LDS is one plain struct a kernel (see program.h), handed to each phase by reference.
#pragma once

#include "mono/site.h"
#include "mono/thread.h"

namespace mono {

#if defined(__AMDGCN__)

// Every thread of the workgroup arrives before any leaves; LDS and global accesses before it are seen by the workgroup
// after it.
MONO_FN void workgroup_barrier(Site = Site::here()) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Lanes of a wave exchange data through LDS without a workgroup barrier: on the device they run in lock step, so only
// the compiler has to keep the order; on the host each lane is a fiber and has to wait for the others.
MONO_FN void wave_sync(Site = Site::here()) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

#else

inline void workgroup_barrier(Site site = Site::here()) { host::workgroup_barrier(site); }

inline void wave_sync(Site site = Site::here()) {
  char frame;
  host::wave_collective(&frame, [](void* const*) {}, "wave sync", site);
}

#endif

}  // namespace mono

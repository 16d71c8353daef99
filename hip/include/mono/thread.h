// Ids of the running thread. A grid is one-dimensional and a workgroup has kWorkgroupThreads threads.
#pragma once

#include "mono/base.h"

#if !defined(__AMDGCN__)
#include "host/executor.h"
#endif

namespace mono {

// index of the thread in its workgroup
MONO_FN u32 thread() {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_workitem_id_x();
#else
  return host::current_thread();
#endif
}

// index of the workgroup in the grid
MONO_FN u32 workgroup() {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_workgroup_id_x();
#else
  return host::current_workgroup();
#endif
}

// index of the wave in its workgroup, known to the compiler to be the same in all lanes
MONO_FN u32 wave() {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_readfirstlane(thread() / kWaveLanes);
#else
  return thread() / kWaveLanes;
#endif
}

// index of the lane in its wave
MONO_FN u32 lane() { return thread() % kWaveLanes; }

}  // namespace mono

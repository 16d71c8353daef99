// The executor as the host device calls it: plain C, loaded through ctypes by mono/device/host.py.
#pragma once

#include "host/executor.h"

extern "C" {

struct MonoHostLaunch {
  const char* kernel;
  const void* args;
  mono::u64 args_bytes;
  mono::u32 workgroups;
  mono::u32 phases;
  // [phases], indexed by phase, in and out
  mono::host::PhaseCounters* counters;
};

struct MonoHostOptions {
  // order of workgroups and waves; 0 runs them by index
  mono::u64 seed;
  // other processes write flags that these launches wait for
  mono::u32 has_peers;
  mono::u32 counts_lines;
  mono::u32 message_bytes;
  mono::u32 reserved;
  // [message_bytes], out: what failed, zero-terminated
  char* message;
};

enum MonoHostStatus : int {
  kMonoHostOk = 0,
  // the launch stopped itself; its FaultRecord says why
  kMonoHostFault = 1,
  // nobody can continue; the message lists who waits for what
  kMonoHostDeadlock = 2,
  // lanes or threads came to different collective operations
  kMonoHostDivergence = 3,
  // the arguments of the run do not fit the kernel
  kMonoHostInvalid = 4,
};

// Runs the launches side by side, as the ranks of one step, until all have ended or one has failed. Not reentrant.
int mono_host_run(const MonoHostLaunch* launches, mono::u32 count, const MonoHostOptions* options);
}

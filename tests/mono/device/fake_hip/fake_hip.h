// A HIP runtime without a GPU, as tests control it (runtime.py): the functions that mono/device/hip.py calls. Each one
// compares what it is given with a script, and a launch runs the host build of the kernel on the bytes that it got.
#pragma once

#include "host/executor.h"

extern "C" {

// What the next calls are expected to bring, and what runs then.
struct FakeHipScript {
  // [module_bytes] the code object
  const char* module;
  mono::u64 module_bytes;
  // path of the host build of the same kernel
  const char* library;
  mono::u32 grid[3];
  mono::u32 block[3];
  mono::u32 lds_bytes;
  mono::u64 stream;
};

// Forgets modules, failures and complaints. The script's pointers stay the caller's.
void fake_hip_begin(const FakeHipScript* script);

// From now on `function` does nothing but return `error`.
void fake_hip_fail(const char* function, int error);

// A line for each difference from the script and for each launch that failed while it ran.
const char* fake_hip_complaints();

// Launches that have run to their end.
mono::u64 fake_hip_launches();
}

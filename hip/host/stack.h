// Stacks of fibers and the switch between them (x86-64, System V).
#pragma once

#include "mono/base.h"

// Saves the callee-saved registers on the running stack, stores its pointer in *save and goes on with the stack `to`.
extern "C" void mono_switch_stack(void** save, void* to);

namespace mono::host {

constexpr u64 kStackBytes = 32 * 1024;

// Memory for the stacks of one run. It stays mapped between runs, so that its pages are touched once; null when there
// is none.
u8* reserve_stacks(u64 count);

// The pointer of a fresh stack that ends at `top` and starts in `entry`, which must not return.
void* prepare_stack(u8* top, void (*entry)());

}  // namespace mono::host

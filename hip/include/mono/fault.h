// A launch that cannot go on: it leaves a record where the host can read it and stops the device by a fault at address
// 0.
#pragma once

#include "mono/atomic.h"
#include "mono/layout.h"

namespace mono {

enum class FaultKind : u32 {
  kNone = 0,
  // a wait passed its deadline
  kTimeout = 1,
  // a step buffer named a state slot outside the pool
  kSlotOutOfRange = 2,
};

// Host-visible memory, zero at build. The first fault of a rank writes it, `kind` last.
struct FaultRecord {
  u32 claimed;
  u32 kind;
  u32 rank;
  u32 phase;
  u32 layer;
  u32 workgroup;
  // timeout: the epoch waited for; slot: the number of slots of the pool
  u32 expected;
  u32 seen;

  MONO_FIELDS(FaultRecord, claimed, kind, rank, phase, layer, workgroup, expected, seen)
};

// What a wait needs when it fails; in device memory rather than among the kernel's arguments, so that it occupies
// registers only then.
struct FaultContext {
  Global<FaultRecord> record;
  // longest wait, in ticks of the constant-rate clock
  u64 deadline_ticks;
  // between the record and the stop, in such ticks: a GPU fault ends the process, which has to read the record first
  u64 grace_ticks;
  u32 rank;
  u32 reserved;

  MONO_FIELDS(FaultContext, record, deadline_ticks, grace_ticks, rank, reserved)
};

// Now, in ticks of the constant-rate clock.
MONO_FN u64 clock_ticks() {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_s_memrealtime();
#else
  return host::clock_ticks();
#endif
}

#if defined(__AMDGCN__)

[[noreturn]] MONO_FN void stop_launch(u64 grace_ticks) {
  const u64 end = clock_ticks() + grace_ticks;
  while (clock_ticks() < end) __builtin_amdgcn_s_sleep(1);
  u64 null = 0;
  // opaque, or the compiler would see a store through null and delete the path that leads here
  asm volatile("" : "+v"(null));
  *reinterpret_cast<volatile u32 __attribute__((address_space(1)))*>(null) = 0;
  __builtin_trap();
}

#else

[[noreturn]] inline void stop_launch(u64) { host::stop_launch(); }

#endif

[[noreturn]] MONO_FN void raise_fault(Global<FaultRecord> target, const FaultRecord& record, u64 grace_ticks) {
  const Global<u32> words{reinterpret_cast<u32*>(target.address)};
  const auto field = [&](u64 offset) { return words + static_cast<i64>(offset / sizeof(u32)); };
  if (compare_exchange<Scope::kSystem>(field(__builtin_offsetof(FaultRecord, claimed)), 0, 1)) {
    store_relaxed<Scope::kSystem>(field(__builtin_offsetof(FaultRecord, rank)), record.rank);
    store_relaxed<Scope::kSystem>(field(__builtin_offsetof(FaultRecord, phase)), record.phase);
    store_relaxed<Scope::kSystem>(field(__builtin_offsetof(FaultRecord, layer)), record.layer);
    store_relaxed<Scope::kSystem>(field(__builtin_offsetof(FaultRecord, workgroup)), record.workgroup);
    store_relaxed<Scope::kSystem>(field(__builtin_offsetof(FaultRecord, expected)), record.expected);
    store_relaxed<Scope::kSystem>(field(__builtin_offsetof(FaultRecord, seen)), record.seen);
    store_release<Scope::kSystem>(field(__builtin_offsetof(FaultRecord, kind)), record.kind);
  }
  stop_launch(grace_ticks);
}

}  // namespace mono

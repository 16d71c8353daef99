// Atomics on 32-bit words with a scope: workgroup (one compute unit), agent (one device, all its XCDs), system (peers
// and the host).
//
// Spin with a relaxed load and follow it by one acquire load: an acquire inside the loop would invalidate the caches at
// every turn.
#pragma once

#include "mono/global.h"

namespace mono {

#if defined(__AMDGCN__)

enum class Scope : int {
  kWorkgroup = __HIP_MEMORY_SCOPE_WORKGROUP,
  kAgent = __HIP_MEMORY_SCOPE_AGENT,
  kSystem = __HIP_MEMORY_SCOPE_SYSTEM,
};

namespace detail {

MONO_FN u32 __attribute__((address_space(1))) * word(Global<u32> target) {
  return (u32 __attribute__((address_space(1)))*)target.address;
}

}  // namespace detail

template <Scope kScope>
MONO_FN u32 load_relaxed(Global<u32> source) {
  return __hip_atomic_load(detail::word(source), __ATOMIC_RELAXED, static_cast<int>(kScope));
}

template <Scope kScope>
MONO_FN u32 load_acquire(Global<u32> source) {
  return __hip_atomic_load(detail::word(source), __ATOMIC_ACQUIRE, static_cast<int>(kScope));
}

template <Scope kScope>
MONO_FN void store_relaxed(Global<u32> target, u32 value) {
  __hip_atomic_store(detail::word(target), value, __ATOMIC_RELAXED, static_cast<int>(kScope));
}

// The wave's stores and cache write-backs have reached the device's coherent level; the release of another wave of the
// workgroup may then cover them.
MONO_FN void complete_stores() {
  // vmcnt(0): the other counters keep their "do not wait" maximum
  __builtin_amdgcn_s_waitcnt(0x0f70);
}

// Relaxed stores after it publish everything before it; one fence serves many flags.
template <Scope kScope>
MONO_FN void release_fence() {
  if constexpr (kScope == Scope::kSystem) __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
  if constexpr (kScope == Scope::kAgent) __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  if constexpr (kScope == Scope::kWorkgroup) __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  // clang before 23 drops the fence's own wait where no store is under way: it does not count a write-back
  // (llvm-project #178316)
  complete_stores();
}

template <Scope kScope>
MONO_FN void store_release(Global<u32> target, u32 value) {
  release_fence<kScope>();
  store_relaxed<kScope>(target, value);
}

// The value before the addition.
template <Scope kScope>
MONO_FN u32 fetch_add_release(Global<u32> target, u32 value) {
  release_fence<kScope>();
  return __hip_atomic_fetch_add(detail::word(target), value, __ATOMIC_RELAXED, static_cast<int>(kScope));
}

// True when the word held `expected` and now holds `desired`.
template <Scope kScope>
MONO_FN bool compare_exchange(Global<u32> target, u32 expected, u32 desired) {
  return __hip_atomic_compare_exchange_strong(detail::word(target), &expected, desired, __ATOMIC_RELAXED,
                                              __ATOMIC_RELAXED, static_cast<int>(kScope));
}

#else

// One address space and one OS thread: the scopes differ in nothing on the host, but a release must wake whoever waits.
enum class Scope : int { kWorkgroup, kAgent, kSystem };

template <Scope>
u32 load_relaxed(Global<u32> source) {
  return __atomic_load_n(source.address, __ATOMIC_RELAXED);
}

template <Scope>
u32 load_acquire(Global<u32> source) {
  return __atomic_load_n(source.address, __ATOMIC_ACQUIRE);
}

// Ordered as a release: ThreadSanitizer does not know the stand-alone fence that precedes it.
template <Scope>
void store_relaxed(Global<u32> target, u32 value) {
  __atomic_store_n(target.address, value, __ATOMIC_RELEASE);
  host::written(target.address);
}

template <Scope>
void store_release(Global<u32> target, u32 value) {
  __atomic_store_n(target.address, value, __ATOMIC_RELEASE);
  host::written(target.address);
}

template <Scope>
u32 fetch_add_release(Global<u32> target, u32 value) {
  const u32 before = __atomic_fetch_add(target.address, value, __ATOMIC_RELEASE);
  host::written(target.address);
  return before;
}

template <Scope>
bool compare_exchange(Global<u32> target, u32 expected, u32 desired) {
  const bool exchanged =
      __atomic_compare_exchange_n(target.address, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  host::written(target.address);
  return exchanged;
}

template <Scope>
void release_fence() {}

inline void complete_stores() {}

#endif

}  // namespace mono

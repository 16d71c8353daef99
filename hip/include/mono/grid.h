// The grid of one launch: which workgroup this is, the barrier of all workgroups, and waits that end.
#pragma once

#include "mono/fault.h"
#include "mono/workgroup.h"

namespace mono {

// dies of an MI355X, each with its own L2; workgroups are dealt to them in turn
constexpr u32 kXcds = 8;

// Barrier state of one launch grid, in device memory, zero at build. Epochs only grow (modulo 2^32) and are never
// reset, so that a launch, a graph replay and the next launch simply go on counting. A GridState belongs to one number
// of workgroups.
struct GridState {
  Line arrivals[kXcds];
  Line leaders;
  Line releases[kXcds];

  MONO_FIELDS(GridState, arrivals, leaders, releases)
};
static_assert(sizeof(GridState) == (2 * kXcds + 1) * kCacheLineBytes);

struct StepPosition {
  u32 phase;
  u32 layer;
};

class Grid {
 public:
  MONO_FN Grid(u32 workgroups, Global<GridState> state, Global<const FaultContext> faults)
      : index_(workgroup()), size_(workgroups), state_(state), faults_(faults) {
    // nobody can finish the launch's first barrier before this workgroup arrives there, so every workgroup reads the
    // same epoch
    epoch_ = load_acquire<Scope::kSystem>(word(state_.address->releases[group()]));
  }

  // index of this workgroup
  MONO_FN u32 index() const { return index_; }
  // workgroups of the launch
  MONO_FN u32 size() const { return size_; }

  // index of this wave among those of the grid; neighbours lie in different workgroups, so that little work still
  // spreads widely
  MONO_FN u32 wave_index() const { return wave() * size_ + index_; }
  MONO_FN u32 waves() const { return size_ * kWorkgroupWaves; }

  MONO_FN void enter(StepPosition position) {
    position_ = position;
#if !defined(__AMDGCN__)
    host::enter_phase(position.phase);
#endif
  }

  // Every workgroup arrives before any leaves, and what one published before it, all see after it.
  //
  // Two-phase: the workgroups of a die count themselves on their own line; the last of them counts for the die; the
  // last die raises one release flag a die. A workgroup polls a line that one writer writes once.
  MONO_FN void sync(Site site = Site::here()) {
    ++epoch_;
#if !defined(__AMDGCN__)
    if (index_ == 0 && thread() == 0) host::count_grid_barrier();
#endif
    complete_stores();
    workgroup_barrier(site);
    if (wave() == 0) {
      if (lane() == 0) arrive();
      wait_for<Scope::kSystem>(word(state_.address->releases[group()]), epoch_);
    }
    workgroup_barrier(site);
  }

  // Returns when `flag` has reached `epoch`; past the deadline the launch stops with a fault record. One whole wave
  // calls it.
  template <Scope kScope>
  MONO_FN void wait_for(Global<u32> flag, u32 epoch) const {
#if defined(__AMDGCN__)
    const u64 deadline = clock_ticks() + load_constant(faults_.address).deadline_ticks;
    while (!epoch_reached(__builtin_amdgcn_readfirstlane(load_relaxed<kScope>(flag)), epoch)) {
      if (clock_ticks() > deadline) fail(FaultKind::kTimeout, epoch, load_relaxed<kScope>(flag));
      __builtin_amdgcn_s_sleep(1);
    }
#else
    if (!host::wait_until_reached(flag.address, epoch, faults_.address->deadline_ticks))
      fail(FaultKind::kTimeout, epoch, *flag.address);
#endif
    load_acquire<kScope>(flag);
  }

  // Stops the launch with a fault record. A whole wave calls it, under a condition that is the same in all of its
  // lanes: where only some lanes never return, the compiler puts their path behind all that the other lanes still do.
  [[noreturn]] MONO_FN void fail(FaultKind kind, u32 expected, u32 seen) const {
    const auto context = load_constant(faults_.address);
    raise_fault(context.record,
                {.claimed = 1,
                 .kind = static_cast<u32>(kind),
                 .rank = context.rank,
                 .phase = position_.phase,
                 .layer = position_.layer,
                 .workgroup = index_,
                 .expected = expected,
                 .seen = seen},
                context.grace_ticks);
  }

 private:
  MONO_FN static Global<u32> word(Line& line) { return {&line.value}; }

  MONO_FN u32 groups() const { return min(size_, kXcds); }
  MONO_FN u32 group() const { return index_ % groups(); }
  MONO_FN u32 group_size() const { return (size_ - group() + groups() - 1) / groups(); }

  MONO_FN void arrive() {
    const Global<u32> arrivals = word(state_.address->arrivals[group()]);
    if (fetch_add_release<Scope::kAgent>(arrivals, 1) + 1 != epoch_ * group_size()) return;
    load_acquire<Scope::kAgent>(arrivals);

    const Global<u32> leaders = word(state_.address->leaders);
    if (fetch_add_release<Scope::kSystem>(leaders, 1) + 1 != epoch_ * groups()) return;
    load_acquire<Scope::kSystem>(leaders);

    release_fence<Scope::kSystem>();
    for (u32 g = 0; g < groups(); ++g) store_relaxed<Scope::kSystem>(word(state_.address->releases[g]), epoch_);
  }

  u32 index_;
  u32 size_;
  Global<GridState> state_;
  Global<const FaultContext> faults_;
  u32 epoch_;
  StepPosition position_{};
};

}  // namespace mono

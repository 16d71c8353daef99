// Which state a row of the step owns. An index from a stale buffer must never become an address, so a slot outside the
// pool counts as none; check_slots then stops the launch, once a layer, away from the loads that wait for the slots.
#pragma once

#include "mono/grid.h"
#include "mono/wave.h"
#include "phases/linear.h"

namespace mono {

constexpr i64 kNoSlot = -1;

struct StateSlots {
  // [rows] i32, in: slot of a row's state, negative for a padded row
  Global<const i32> slots;
  // [rows] u8, in, or null: rows whose new state the prefix cache keeps a copy of
  Global<const u8> track_mask;
  // [rows] i64, in: slot of that copy
  Global<const i64> track_slots;
  u32 pool_slots;

  MONO_FN i64 of(u32 row) const {
    const i32 slot = slots.load(row);
    return slot >= 0 && static_cast<u32>(slot) < pool_slots ? slot : kNoSlot;
  }

  MONO_FN i64 tracked(u32 row) const {
    if (track_mask.address == nullptr || track_mask.load(row) == 0) return kNoSlot;
    const i64 slot = track_slots.load(row);
    return slot >= 0 && slot < pool_slots ? slot : kNoSlot;
  }

  // Stops the launch when a row's slot lies past the pool, or the slot of its copy outside of it. The whole workgroup
  // calls it; one wave of the grid looks, a lane a row.
  MONO_FN void check(u32 rows, const Grid& grid) const {
    static_assert(kMaxRows <= kWaveLanes);
    if (grid.index() != 0 || wave() != 0) return;
    const u32 row = min(lane(), rows - 1);
    const i32 slot = slots.load(row);
    const bool is_tracked = slot >= 0 && track_mask.address != nullptr && track_mask.load(row) != 0;
    const bool slot_is_wrong = slot >= 0 && of(row) == kNoSlot;
    const bool copy_is_wrong = is_tracked && tracked(row) == kNoSlot;
    const u64 wrong_rows = wave_ballot(slot_is_wrong || copy_is_wrong);
    if (wrong_rows == 0) return;
    const i64 seen = copy_is_wrong && !slot_is_wrong ? track_slots.load(row) : slot;
    grid.fail(FaultKind::kSlotOutOfRange, pool_slots, wave_read(static_cast<u32>(seen), __builtin_ctzll(wrong_rows)));
  }
};

}  // namespace mono

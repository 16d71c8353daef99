// Which state a row of the step owns. An index from a stale buffer must never become an address, so a slot outside the
// pool counts as none; check_slots then stops the launch, once a layer, away from the loads that wait for the slots.
#pragma once

#include "mono/grid.h"

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

  // Stops the launch when a row's slot lies past the pool, or the slot of its copy outside of it.
  MONO_FN void check(u32 rows, const Grid& grid) const {
    if (grid.index() != 0 || thread() >= rows) return;
    const i32 slot = slots.load(thread());
    if (slot < 0) return;
    const bool is_tracked = track_mask.address != nullptr && track_mask.load(thread()) != 0;
    const bool slot_is_wrong = of(thread()) == kNoSlot;
    if (!slot_is_wrong && !(is_tracked && tracked(thread()) == kNoSlot)) return;
    const i64 seen = slot_is_wrong ? slot : track_slots.load(thread());
    grid.fail(FaultKind::kSlotOutOfRange, pool_slots, static_cast<u32>(seen));
  }
};

}  // namespace mono

// Operations of a whole wave of 64 lanes. Every lane must arrive: the host executor fails a launch whose lanes diverge
// here, because on the device an absent lane would hand out whatever its register holds.
#pragma once

#include "mono/site.h"
#include "mono/thread.h"

namespace mono {

#if defined(__AMDGCN__)

namespace detail {

// data-parallel-primitive controls of the instruction set, named as in the ISA manual
enum Dpp : int { kQuadXor1 = 0xB1, kQuadXor2 = 0x4E, kRowHalfMirror = 0x141, kRowMirror = 0x140 };

constexpr int kAllRows = 0xf;
constexpr int kAllBanks = 0xf;

template <Dpp kControl>
MONO_FN f32 dpp(f32 value) {
  const int bits = bits_of<int>(value);
  return bits_of<f32>(__builtin_amdgcn_update_dpp(bits, bits, kControl, kAllRows, kAllBanks, true));
}

MONO_FN f32 from_lane(f32 value, u32 source) {
  return bits_of<f32>(__builtin_amdgcn_ds_bpermute(static_cast<int>(source * sizeof(f32)), bits_of<int>(value)));
}

}  // namespace detail

// The value of lane `source`.
MONO_FN f32 wave_read(f32 value, u32 source) { return detail::from_lane(value, source); }
MONO_FN u32 wave_read(u32 value, u32 source) { return bits_of<u32>(detail::from_lane(bits_of<f32>(value), source)); }

// The value of lane `lane() ^ mask`.
MONO_FN f32 wave_xor(f32 value, u32 mask) { return detail::from_lane(value, lane() ^ mask); }

// Bit l is set when lane l holds true; all 64 bits count.
MONO_FN u64 wave_ballot(bool predicate) { return __builtin_amdgcn_ballot_w64(predicate); }

namespace detail {

// One butterfly step over 2 * kDistance lanes. Once the lanes of a half agree, mirroring a group reaches the partner
// half as an exclusive or with kDistance does, and costs no LDS instruction.
template <u32 kDistance, class Combine>
MONO_FN f32 butterfly(f32 value, Combine combine) {
  if constexpr (kDistance == 1) return combine(value, dpp<kQuadXor1>(value));
  if constexpr (kDistance == 2) return combine(value, dpp<kQuadXor2>(value));
  if constexpr (kDistance == 4) return combine(value, dpp<kRowHalfMirror>(value));
  if constexpr (kDistance == 8) return combine(value, dpp<kRowMirror>(value));
  if constexpr (kDistance >= 16) return combine(value, from_lane(value, lane() ^ kDistance));
}

template <u32 kLanes, class Combine>
MONO_FN f32 reduce(f32 value, Combine combine, Site) {
  static_assert(kLanes >= 2 && kLanes <= kWaveLanes && (kLanes & (kLanes - 1)) == 0);
  value = butterfly<1>(value, combine);
  if constexpr (kLanes > 2) value = butterfly<2>(value, combine);
  if constexpr (kLanes > 4) value = butterfly<4>(value, combine);
  if constexpr (kLanes > 8) value = butterfly<8>(value, combine);
  if constexpr (kLanes > 16) value = butterfly<16>(value, combine);
  if constexpr (kLanes > 32) value = butterfly<32>(value, combine);
  return value;
}

}  // namespace detail

#else

namespace detail {

template <class T>
struct Exchange {
  T value;
  u32 source;
  T result;
};

template <class T>
T exchange(T value, u32 source, Site site) {
  Exchange<T> frame{value, source % kWaveLanes, {}};
  host::wave_collective(
      &frame,
      [](void* const* lanes) {
        for (u32 i = 0; i < kWaveLanes; ++i) {
          auto* self = static_cast<Exchange<T>*>(lanes[i]);
          self->result = static_cast<Exchange<T>*>(lanes[self->source])->value;
        }
      },
      "wave exchange", site);
  return frame.result;
}

// The butterfly of the device in the same order, so that both give the same bits.
template <u32 kLanes, class Combine>
f32 reduce(f32 value, Combine, Site site) {
  static_assert(kLanes >= 2 && kLanes <= kWaveLanes && (kLanes & (kLanes - 1)) == 0);
  host::wave_collective(
      &value,
      [](void* const* lanes) {
        f32 current[kWaveLanes];
        for (u32 i = 0; i < kWaveLanes; ++i) current[i] = *static_cast<f32*>(lanes[i]);
        for (u32 distance = 1; distance < kLanes; distance *= 2) {
          f32 next[kWaveLanes];
          for (u32 i = 0; i < kWaveLanes; ++i) next[i] = Combine{}(current[i], current[i ^ distance]);
          for (u32 i = 0; i < kWaveLanes; ++i) current[i] = next[i];
        }
        for (u32 i = 0; i < kWaveLanes; ++i) *static_cast<f32*>(lanes[i]) = current[i];
      },
      "wave reduction", site);
  return value;
}

}  // namespace detail

inline f32 wave_read(f32 value, u32 source, Site site = Site::here()) { return detail::exchange(value, source, site); }
inline u32 wave_read(u32 value, u32 source, Site site = Site::here()) { return detail::exchange(value, source, site); }
inline f32 wave_xor(f32 value, u32 mask, Site site = Site::here()) {
  return detail::exchange(value, lane() ^ mask, site);
}

inline u64 wave_ballot(bool predicate, Site site = Site::here()) {
  u64 frame = predicate;
  host::wave_collective(
      &frame,
      [](void* const* lanes) {
        u64 mask = 0;
        for (u32 i = 0; i < kWaveLanes; ++i) mask |= *static_cast<u64*>(lanes[i]) << i;
        for (u32 i = 0; i < kWaveLanes; ++i) *static_cast<u64*>(lanes[i]) = mask;
      },
      "wave ballot", site);
  return frame;
}

#endif

namespace detail {

struct Add {
  MONO_FN f32 operator()(f32 a, f32 b) const { return a + b; }
};

struct Max {
  MONO_FN f32 operator()(f32 a, f32 b) const { return __builtin_fmaxf(a, b); }
};

}  // namespace detail

// Sum over each aligned group of kLanes lanes, in every lane of the group. The order is a butterfly of distances 1, 2,
// 4, ...
template <u32 kLanes = kWaveLanes>
MONO_FN f32 wave_sum(f32 value, Site site = Site::here()) {
  return detail::reduce<kLanes>(value, detail::Add{}, site);
}

// Maximum over each aligned group of kLanes lanes, in every lane of the group. A NaN loses to a number.
template <u32 kLanes = kWaveLanes>
MONO_FN f32 wave_max(f32 value, Site site = Site::here()) {
  return detail::reduce<kLanes>(value, detail::Max{}, site);
}

}  // namespace mono

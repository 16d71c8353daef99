// Short causal convolution over the last four tokens of every q, k and v channel, SiLU, and the shift of its state.
#pragma once

#include "mono/convert.h"
#include "phases/state_slots.h"

namespace mono {

struct KdaConv {
  static constexpr char kName[] = "kda_conv";
  static constexpr u32 kTaps = 4;
  // past tokens that the state holds
  static constexpr u32 kWindow = kTaps - 1;

  struct Args {
    // [rows, projected_columns] bf16, dense, in: its first `channels` columns are q, k, v
    Global<const bf16> projected;
    // [channels, 4] fp32, dense, in: tap 3 meets the current token
    Global<const f32> taps;
    // [rows] i32, in: state slot, negative for a padded row
    Global<const i32> slots;
    // [rows] u8, in, or null: rows whose new state is also kept in track_slots
    Global<const u8> track_mask;
    // [rows] i64, in, or null
    Global<const i64> track_slots;
    // [pool_slots, 3, channels] bf16, slot stride in elements, inner dimensions dense, in and out: oldest token first
    Global<bf16> state;
    // [rows, channels] bf16, dense, out; zeros for a padded row
    Global<bf16> convolved;
    i64 state_slot_stride;
    u32 rows;
    u32 projected_columns;
    u32 channels;
    u32 pool_slots;

    MONO_FIELDS(Args, projected, taps, slots, track_mask, track_slots, state, convolved, state_slot_stride, rows,
                projected_columns, channels, pool_slots)
  };

  struct Shared {};

  // A wave takes 128 channels of one row, two a lane: one 4-byte word of every bf16 row. Rows do not share a wave, so
  // that a step of many rows waits for memory no longer than a step of one; each row then reads the taps, from the
  // cache after the first.
  static constexpr u32 kLaneChannels = 2;
  static constexpr u32 kWaveChannels = kWaveLanes * kLaneChannels;

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    const StateSlots slots{args.slots, args.track_mask, args.track_slots, args.pool_slots};
    const u32 row_units = (args.channels + kWaveChannels - 1) / kWaveChannels;
    for (u32 unit = grid.wave_index(); unit < args.rows * row_units; unit += grid.waves()) {
      const u32 row = unit / row_units;
      const u32 channel = unit % row_units * kWaveChannels + lane() * kLaneChannels;
      if (channel >= args.channels) continue;
      const i64 slot = slots.of(row);
      const u32 result = slot == kNoSlot ? 0 : convolve(args, slots, row, channel, slot);
      args.convolved.publish(static_cast<i64>(row) * args.channels + channel, result);
    }
    slots.check(args.rows, grid);
  }

 private:
  // The two channels' results in one word; their state moves on by one token.
  MONO_FN static u32 convolve(const Args& args, const StateSlots& slots, u32 row, u32 channel, i64 slot) {
    const f32x4 low_taps = args.taps.load_vec<4>(static_cast<i64>(channel) * kTaps);
    const f32x4 high_taps = args.taps.load_vec<4>(static_cast<i64>(channel + 1) * kTaps);
    const Global<bf16> state = args.state + slot * args.state_slot_stride;
    // words of two bf16: the window of past tokens, then the current token
    u32 tokens[kTaps];
    MONO_UNROLL
    for (u32 i = 0; i < kWindow; ++i)
      tokens[i] = bits_of<u32>(state.load_vec<2>(static_cast<i64>(i) * args.channels + channel));
    tokens[kWindow] =
        bits_of<u32>(args.projected.load_vec<2>(static_cast<i64>(row) * args.projected_columns + channel));

    shift(args, tokens, slot, channel);
    const i64 tracked = slots.tracked(row);
    if (tracked != kNoSlot) shift(args, tokens, tracked, channel);

    f32 low = 0.0f;
    f32 high = 0.0f;
    MONO_UNROLL
    for (u32 i = 0; i < kTaps; ++i) {
      low += to_f32(static_cast<bf16>(tokens[i] & 0xffff)) * low_taps[i];
      high += to_f32(static_cast<bf16>(tokens[i] >> 16)) * high_taps[i];
    }
    return pack_bf16(silu(low), silu(high));
  }

  // The tokens without the oldest become the state of `slot`.
  MONO_FN static void shift(const Args& args, const u32 (&tokens)[kTaps], i64 slot, u32 channel) {
    const Global<bf16> state = args.state + slot * args.state_slot_stride;
    MONO_UNROLL
    for (u32 i = 0; i < kWindow; ++i) {
      state.store_vec(static_cast<i64>(i) * args.channels + channel, bits_of<bf16x2>(tokens[i + 1]));
    }
  }
};

}  // namespace mono

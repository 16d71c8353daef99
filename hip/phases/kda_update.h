// The delta rule of Kimi Delta Attention: decay every key channel of the state, correct it towards the new value, read
// it with the query.
//
//   q = l2norm(q) / sqrt(K),  k = l2norm(k),  g = lower_bound * sigmoid(exp(A_log) * (forget + dt_bias)),  beta =
//   sigmoid(b) S = S * exp(g)      S += (v - S k) beta k^T      o = S q
#pragma once

#include "mono/convert.h"
#include "mono/wave.h"
#include "phases/state_slots.h"

namespace mono {

struct KdaUpdate {
  static constexpr char kName[] = "kda_update";
  // K = V; the kernel is compiled for it
  static constexpr u32 kHeadDim = 128;
  static constexpr f32 kNormEps = 1e-6f;

  struct Args {
    // [rows, 3 * heads * 128] bf16, dense, in: q, k, v after the convolution
    Global<const bf16> convolved;
    // [rows, projected_columns] bf16, dense, in: its column beta_column + h is the raw beta of head h
    Global<const bf16> projected;
    // [rows, heads * 128] bf16, dense, in: forget gate before its activation
    Global<const bf16> forget;
    // [heads] fp32, in
    Global<const f32> a_log;
    // [heads * 128] fp32, in
    Global<const f32> dt_bias;
    // [rows] i32, in: state slot, negative for a padded row
    Global<const i32> slots;
    // [rows] u8, in, or null: rows whose new state is also kept in track_slots
    Global<const u8> track_mask;
    // [rows] i64, in, or null
    Global<const i64> track_slots;
    // [pool_slots, heads, V, K] fp32, slot stride in elements, inner dimensions dense, in and out
    Global<f32> state;
    // [rows, heads, V] bf16, dense, out; zeros for a padded row
    Global<bf16> output;
    i64 state_slot_stride;
    u32 rows;
    u32 heads;
    u32 projected_columns;
    u32 beta_column;
    u32 pool_slots;
    f32 lower_bound;

    MONO_FIELDS(Args, convolved, projected, forget, a_log, dt_bias, slots, track_mask, track_slots, state, output,
                state_slot_stride, rows, heads, projected_columns, beta_column, pool_slots, lower_bound)
  };

  struct Shared {};

  // A wave takes eight rows of one head's state and eight lanes share a row: lane l holds, of row l / 8, the key
  // channels 32 i + 4 (l % 8) + j (i, j = 0..3), so that a load of the wave covers whole cache lines and a sum needs
  // three exchanges.
  static constexpr u32 kRowLanes = 8;
  static constexpr u32 kWaveRows = kWaveLanes / kRowLanes;
  static constexpr u32 kHeadUnits = kHeadDim / kWaveRows;
  static constexpr u32 kVecs = kHeadDim / kRowLanes / 4;

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    const StateSlots slots{args.slots, args.track_mask, args.track_slots, args.pool_slots};
    const u32 units = args.rows * args.heads * kHeadUnits;
    for (u32 unit = grid.wave_index(); unit < units; unit += grid.waves()) {
      const u32 row = unit / (args.heads * kHeadUnits);
      const u32 head = unit / kHeadUnits % args.heads;
      const u32 value = unit % kHeadUnits * kWaveRows + lane() / kRowLanes;
      const i64 slot = slots.of(row);
      const f32 output = slot == kNoSlot ? 0.0f : update(args, slots, row, head, value, slot);
      if (lane() % kRowLanes == 0) {
        args.output.publish((static_cast<i64>(row) * args.heads + head) * kHeadDim + value,
                            static_cast<u16>(to_bf16(output)));
      }
    }
  }

 private:
  // the first key channel of vector i of this lane
  MONO_FN static u32 key_channel(u32 i) { return kRowLanes * 4 * i + lane() % kRowLanes * 4; }

  struct Keys {
    f32 values[kVecs][4];
  };

  MONO_FN static Keys load_keys(Global<const bf16> source) {
    Keys keys;
    MONO_UNROLL
    for (u32 i = 0; i < kVecs; ++i) {
      const bf16x4 loaded = source.load_vec<4>(key_channel(i));
      MONO_UNROLL
      for (u32 j = 0; j < 4; ++j) keys.values[i][j] = to_f32(static_cast<bf16>(loaded[j]));
    }
    return keys;
  }

  MONO_FN static f32 dot(const Keys& a, const Keys& b) {
    f32 sum = 0.0f;
    MONO_UNROLL
    for (u32 i = 0; i < kVecs; ++i) {
      MONO_UNROLL
      for (u32 j = 0; j < 4; ++j) sum = fma(a.values[i][j], b.values[i][j], sum);
    }
    return sum;
  }

  MONO_FN static void scale(Keys& keys, f32 factor) {
    MONO_UNROLL
    for (u32 i = 0; i < kVecs; ++i) {
      MONO_UNROLL
      for (u32 j = 0; j < 4; ++j) keys.values[i][j] *= factor;
    }
  }

  MONO_FN static Keys load_decay(const Args& args, u32 row, u32 head) {
    const i64 channels = static_cast<i64>(args.heads) * kHeadDim;
    Keys decay = load_keys(args.forget + (row * channels + head * kHeadDim));
    const f32 rate = exp(args.a_log.load(head));
    MONO_UNROLL
    for (u32 i = 0; i < kVecs; ++i) {
      const f32x4 bias = args.dt_bias.load_vec<4>(head * kHeadDim + key_channel(i));
      MONO_UNROLL
      for (u32 j = 0; j < 4; ++j)
        decay.values[i][j] = exp(args.lower_bound * sigmoid(rate * (decay.values[i][j] + bias[j])));
    }
    return decay;
  }

  // One token for this lane's part of the state; the output of its row in every lane of the row.
  MONO_FN static f32 update(const Args& args, const StateSlots& slots, u32 row, u32 head, u32 value, i64 slot) {
    const i64 state_row = (static_cast<i64>(head) * kHeadDim + value) * kHeadDim;
    const Global<const f32> old_state{args.state.address + slot * args.state_slot_stride + state_row};
    f32x4 loaded[kVecs];
    MONO_UNROLL
    for (u32 i = 0; i < kVecs; ++i) loaded[i] = old_state.stream<4>(key_channel(i));

    const i64 channels = static_cast<i64>(args.heads) * kHeadDim;
    const Global<const bf16> convolved = args.convolved + (row * 3 * channels + head * kHeadDim);
    Keys q = load_keys(convolved);
    Keys k = load_keys(convolved + channels);
    const f32 v = to_f32(convolved.load(2 * channels + value));
    const f32 beta =
        sigmoid(to_f32(args.projected.load(static_cast<i64>(row) * args.projected_columns + args.beta_column + head)));
    const Keys decay = load_decay(args, row, head);

    // 128^-0.5
    constexpr f32 kQueryScale = 0.08838834764831845f;
    scale(q, rsqrt(wave_sum<kRowLanes>(dot(q, q)) + kNormEps) * kQueryScale);
    scale(k, rsqrt(wave_sum<kRowLanes>(dot(k, k)) + kNormEps));

    Keys state;
    MONO_UNROLL
    for (u32 i = 0; i < kVecs; ++i) {
      MONO_UNROLL
      for (u32 j = 0; j < 4; ++j) state.values[i][j] = loaded[i][j] * decay.values[i][j];
    }
    const f32 correction = (v - wave_sum<kRowLanes>(dot(state, k))) * beta;
    MONO_UNROLL
    for (u32 i = 0; i < kVecs; ++i) {
      MONO_UNROLL
      for (u32 j = 0; j < 4; ++j) state.values[i][j] = fma(k.values[i][j], correction, state.values[i][j]);
    }

    store_state(args, state, slot, state_row);
    const i64 tracked = slots.tracked(row);
    if (tracked != kNoSlot) store_state(args, state, tracked, state_row);
    return wave_sum<kRowLanes>(dot(state, q));
  }

  MONO_FN static void store_state(const Args& args, const Keys& state, i64 slot, i64 state_row) {
    const Global<f32> target = args.state + (slot * args.state_slot_stride + state_row);
    MONO_UNROLL
    for (u32 i = 0; i < kVecs; ++i) {
      const f32x4 vector = {state.values[i][0], state.values[i][1], state.values[i][2], state.values[i][3]};
      target.store_vec(key_channel(i), vector);
    }
  }
};

}  // namespace mono

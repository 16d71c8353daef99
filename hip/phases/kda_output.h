// Gated RMSNorm of every head's output, and this rank's partial sum of the output projection.
#pragma once

#include "mono/wave.h"
#include "phases/linear.h"
#include "phases/state_slots.h"

namespace mono {

struct KdaOutput {
  static constexpr char kName[] = "kda_output";
  static constexpr u32 kHeadDim = 128;
  // value channels that are normed into LDS at once; on an MI355X that is all of them with TP 2 or more
  static constexpr u32 kChunk = kLdsBytes > 128 * 1024 ? 4096 : 1024;
  // one 16-byte step, so that the rows of a matrix operand fall on different banks
  static constexpr u32 kSkew = 8;

  struct Args {
    // [rows, channels] bf16, dense, in: output of the delta rule, channels = heads * 128
    Global<const bf16> output;
    // [rows, channels] bf16, dense, in: output gate before its activation
    Global<const bf16> gate;
    // [128] bf16, in: weight of the norm
    Global<const bf16> norm_weight;
    // [hidden, channels] bf16, dense, in
    Global<const bf16> weight;
    // [rows] i32, in: negative for a padded row
    Global<const i32> slots;
    // [rows, hidden] bf16, dense, out; zeros for a padded row
    Global<bf16> partial;
    u32 rows;
    u32 channels;
    u32 hidden;
    f32 norm_eps;

    MONO_FIELDS(Args, output, gate, norm_weight, weight, slots, partial, rows, channels, hidden, norm_eps)
  };

  struct Shared {
    LinearShared linear;
    u16 normed[kMaxRows][kChunk + kSkew];
  };
  static_assert(sizeof(Shared) <= kLdsBytes);

  MONO_FN static void run(const Args& args, Shared& shared, const Grid& grid) {
    const ColumnRange owned = owned_columns(args.hidden, grid);
    const u32 row = lane() % kMaxRows;
    for_each_block(owned, [&]<int kTiles>(ColumnBlock<kTiles> block) {
      TileSums<kTiles> sums{};
      for (u32 chunk = 0; chunk < args.channels; chunk += kChunk) {
        const u32 end = min(chunk + kChunk, args.channels);
        if (block.first == owned.begin || args.channels > kChunk) fill_chunk(args, chunk, end, shared);
        multiply(
            sums, block, chunk, end,
            [&](u32 k) { return *reinterpret_cast<const bf16x8*>(&shared.normed[row][k - chunk]); },
            [&](u32 column) { return args.weight + static_cast<i64>(column) * args.channels; });
      }
      store_block(sums, block, args.rows, shared.linear, [&](u32 r, u32 column, f32 low, f32 high) {
        args.partial.publish(static_cast<i64>(r) * args.hidden + column, pack_bf16(low, high));
      });
    });
  }

 private:
  // sixteen lanes share a head: eight channels, one 16-byte word, a lane
  static constexpr u32 kLaneChannels = 8;
  static constexpr u32 kHeadLanes = kHeadDim / kLaneChannels;
  static constexpr u32 kHeadsAtOnce = kWorkgroupThreads / kHeadLanes;

  // normed[row][0 .. end - begin) = rmsnorm(output) * norm_weight * sigmoid(gate), in channels [begin, end)
  MONO_FN static void fill_chunk(const Args& args, u32 begin, u32 end, Shared& shared) {
    // other waves may still read the chunk before this one
    workgroup_barrier();
    const u32 heads = (end - begin) / kHeadDim;
    const u32 first_channel = thread() % kHeadLanes * kLaneChannels;
    const bf16x8 weight = args.norm_weight.load_vec<8>(first_channel);
    const u32 units = args.rows * heads;
    for (u32 first = 0; first < units; first += kHeadsAtOnce) {
      const u32 unit = first + thread() / kHeadLanes;
      const bool valid = unit < units;
      const u32 row = valid ? unit / heads : 0;
      const u32 channel = (valid ? unit % heads : 0) * kHeadDim + first_channel;
      const bool padded = args.slots.load(row) < 0;
      const i64 source = static_cast<i64>(row) * args.channels + begin + channel;
      const bf16x8 normed =
          norm_head(args.output.load_vec<8>(source), args.gate.load_vec<8>(source), weight, args.norm_eps);
      if (valid) *reinterpret_cast<bf16x8*>(&shared.normed[row][channel]) = padded ? bf16x8{} : normed;
    }
    workgroup_barrier();
  }

  // One head, spread over sixteen lanes.
  MONO_FN static bf16x8 norm_head(bf16x8 output, bf16x8 gate, bf16x8 weight, f32 eps) {
    f32 values[kLaneChannels];
    f32 squares = 0.0f;
    MONO_UNROLL
    for (u32 i = 0; i < kLaneChannels; ++i) {
      values[i] = to_f32(static_cast<bf16>(output[i]));
      squares = fma(values[i], values[i], squares);
    }
    const f32 scale = rsqrt(wave_sum<kHeadLanes>(squares) * (1.0f / kHeadDim) + eps);
    bf16x8 normed;
    MONO_UNROLL
    for (u32 i = 0; i < kLaneChannels; ++i) {
      const f32 gated =
          values[i] * scale * to_f32(static_cast<bf16>(weight[i])) * sigmoid(to_f32(static_cast<bf16>(gate[i])));
      normed[i] = static_cast<u16>(to_bf16(gated));
    }
    return normed;
  }
};

}  // namespace mono

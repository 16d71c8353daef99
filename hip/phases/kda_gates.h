// Second half of the two low-rank gate projections: the forget gate of every key channel and the output gate of every
// value channel.
#pragma once

#include "phases/linear.h"

namespace mono {

struct KdaGates {
  static constexpr char kName[] = "kda_gates";

  struct Args {
    // [rows, projected_columns] bf16, dense, in
    Global<const bf16> projected;
    // forget gate f_b: [channels, low_rank] bf16, dense, in
    Global<const bf16> forget_weight;
    // output gate g_b: [channels, low_rank] bf16, dense, in
    Global<const bf16> output_weight;
    // [2, rows, channels] bf16, dense, out: forget gate, output gate, both before their activation
    Global<bf16> gates;
    u32 rows;
    u32 projected_columns;
    // where f_a begins in `projected`; g_a follows it
    u32 low_rank_column;
    u32 low_rank;
    u32 channels;
    u32 reserved;

    MONO_FIELDS(Args, projected, forget_weight, output_weight, gates, rows, projected_columns, low_rank_column,
                low_rank, channels, reserved)
  };

  using Shared = LinearShared;

  MONO_FN static void run(const Args& args, Shared& shared, const Grid& grid) {
    const ColumnRange owned = owned_columns(2 * args.channels, grid);
    run_gate(args, 0, args.forget_weight, {owned.begin, min(owned.end, args.channels)}, shared);
    run_gate(args, 1, args.output_weight,
             {max(owned.begin, args.channels) - args.channels, max(owned.end, args.channels) - args.channels}, shared);
  }

 private:
  MONO_FN static void run_gate(const Args& args, u32 gate, Global<const bf16> weight, ColumnRange owned,
                               Shared& shared) {
    const u32 row = lane() % kMaxRows;
    const Global<const bf16> x = args.projected + (static_cast<i64>(min(row, args.rows - 1)) * args.projected_columns +
                                                   args.low_rank_column + gate * args.low_rank);
    for_each_block(owned, [&]<int kTiles>(ColumnBlock<kTiles> block) {
      TileSums<kTiles> sums{};
      multiply(
          sums, block, 0, args.low_rank, [&](u32 k) { return x.load_vec_if<8>(row < args.rows, k); },
          [&](u32 column) { return weight + static_cast<i64>(column) * args.low_rank; });
      store_block(sums, block, args.rows, shared, [&](u32 r, u32 column, f32 low, f32 high) {
        args.gates.publish((static_cast<i64>(gate) * args.rows + r) * args.channels + column, pack_bf16(low, high));
      });
    });
  }
};

}  // namespace mono

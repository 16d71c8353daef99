// All projections of a KDA layer's input in one product: q, k, v, beta and the two low-rank gate inputs.
#pragma once

#include "phases/linear.h"

namespace mono {

struct KdaProject {
  static constexpr char kName[] = "kda_project";
  // the checkpoint keeps q, k, v, beta, f_a and g_a apart; a loader may have joined some or all of them
  static constexpr u32 kMaxWeights = 6;

  struct Args {
    // [rows, hidden] bf16, dense, in
    Global<const bf16> x;
    // weight i: [weight_end[i] - weight_end[i - 1], hidden] bf16, dense, in
    Global<const bf16> weights[kMaxWeights];
    // [rows, columns] bf16, dense, out; columns are q, k, v (heads x head_dim each), beta (heads), f_a, g_a (low_rank
    // each)
    Global<bf16> projected;
    // the column after the last of weight i; unused weights repeat `columns`
    u32 weight_end[kMaxWeights];
    u32 rows;
    u32 hidden;
    u32 columns;
    u32 reserved;

    MONO_FIELDS(Args, x, weights, projected, weight_end, rows, hidden, columns, reserved)
  };

  using Shared = LinearShared;

  MONO_FN static void run(const Args& args, Shared& shared, const Grid& grid) {
    const u32 row = lane() % kMaxRows;
    const Global<const bf16> x = args.x + static_cast<i64>(min(row, args.rows - 1)) * args.hidden;
    for_each_block(owned_columns(args.columns, grid), [&]<int kTiles>(ColumnBlock<kTiles> block) {
      TileSums<kTiles> sums{};
      multiply(
          sums, block, 0, args.hidden, [&](u32 k) { return x.load_vec_if<8>(row < args.rows, k); },
          [&](u32 column) { return weight_row(args, column); });
      store_block(sums, block, args.rows, shared, [&](u32 r, u32 column, f32 low, f32 high) {
        args.projected.publish(static_cast<i64>(r) * args.columns + column, pack_bf16(low, high));
      });
    });
  }

 private:
  MONO_FN static Global<const bf16> weight_row(const Args& args, u32 column) {
    Global<const bf16> weight = args.weights[0];
    u32 begin = 0;
    MONO_UNROLL
    for (u32 i = 1; i < kMaxWeights; ++i) {
      const Global<const bf16> next = args.weights[i];
      const u32 end = args.weight_end[i - 1];
      weight.address = column < end ? weight.address : next.address;
      begin = column < end ? begin : end;
    }
    return weight + static_cast<i64>(column - begin) * args.hidden;
  }
};

}  // namespace mono

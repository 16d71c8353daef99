// Products of up to 16 rows with a weight matrix whose every byte is read once, 16 bytes a lane.
//
// A workgroup owns a contiguous range of output columns and its four waves share the depth; their sums meet in LDS in
// the order of the waves. So a column's value depends on its own operands only: the same bits for every grid size.
#pragma once

#include "mono/grid.h"
#include "mono/mfma.h"

namespace mono {

// rows of one step that a compiled phase takes at most
constexpr u32 kMaxRows = kMfmaRows;
// depths are multiples of this: every wave then holds whole instructions
constexpr u32 kDepthGranule = kWorkgroupWaves * kMfmaDepth;
// columns that a workgroup works on at once: as many matrix instructions share each operand of x
constexpr int kMaxTiles = 2;
constexpr u32 kBlockColumns = kMaxTiles * kMfmaColumns;

struct ColumnRange {
  u32 begin;
  u32 end;
};

// This workgroup's share of `columns` (even): contiguous, begins at an even column, differs by at most two between
// workgroups.
MONO_FN ColumnRange owned_columns(u32 columns, const Grid& grid) {
  constexpr u32 kPair = 2;
  const u64 pairs = columns / kPair;
  return {static_cast<u32>(pairs * grid.index() / grid.size()) * kPair,
          static_cast<u32>(pairs * (grid.index() + 1) / grid.size()) * kPair};
}

// kTiles * 16 columns from `first`, cut off at `end`; lane l holds column l % 16 of every tile.
template <int kTiles>
struct ColumnBlock {
  u32 first;
  u32 end;

  MONO_FN bool valid(int tile) const { return lane_column(tile) < end; }
  // this lane's column, or the last one where the block is cut off
  MONO_FN u32 column(int tile) const { return min(lane_column(tile), end - 1); }

 private:
  MONO_FN u32 lane_column(int tile) const { return first + tile * kMfmaColumns + lane() % kMfmaColumns; }
};

// Calls `body` with the blocks of a range in order.
template <class Body>
MONO_FN void for_each_block(ColumnRange range, const Body& body) {
  for (u32 first = range.begin; first < range.end; first += kBlockColumns) {
    if (range.end - first > kMfmaColumns) {
      body(ColumnBlock<kMaxTiles>{first, range.end});
    } else {
      body(ColumnBlock<1>{first, range.end});
    }
  }
}

struct LinearShared {
  // skewed, so that the lanes of a column's 16 rows fall on different banks
  f32 sums[kWorkgroupWaves][kBlockColumns][kMaxRows + 4];
};

template <int kTiles>
struct TileSums {
  f32x4 tile[kTiles];
};

namespace detail {

// instructions of a tile whose operands are loaded together; two such groups are in flight
constexpr int kStepsInFlight = 4;

template <int kTiles, int kSteps>
struct Operands {
  bf16x8 weights[kTiles][kSteps];
  bf16x8 x[kSteps];
};

// Loads and multiplies the operands of one wave.
template <int kTiles, class LoadX>
struct Multiplier {
  TileSums<kTiles>& sums;
  const LoadX& load_x;
  Global<const bf16> weight_rows[kTiles];
  bool column_valid[kTiles];

  template <int kSteps>
  MONO_FN void load(Operands<kTiles, kSteps>& operands, u32 k) const {
    MONO_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      MONO_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        operands.weights[t][s] = weight_rows[t].template stream_if<8>(column_valid[t], k + s * kMfmaDepth);
      }
    }
    MONO_UNROLL
    for (int s = 0; s < kSteps; ++s) operands.x[s] = load_x(k + s * kMfmaDepth);
  }

  template <int kSteps>
  MONO_FN void accumulate(const Operands<kTiles, kSteps>& operands) const {
    MONO_UNROLL
    for (int t = 0; t < kTiles; ++t) sums.tile[t] = mfma_bf16(operands.x, operands.weights[t], sums.tile[t]);
  }
};

}  // namespace detail

// sums += x[16, begin_k .. end_k) weight[columns of the block, begin_k .. end_k)^T, over this wave's share of the
// depth.
//
// `load_x(k)` gives elements k .. k + 7 of this lane's row of x (row lane % 16) and `weight_row(column)` the row of the
// weight that makes an output column. Lanes of rows and columns past the end take part with any values: no sum of a
// valid row and column depends on them.
template <int kTiles, class LoadX, class WeightRow>
MONO_FN void multiply(TileSums<kTiles>& sums, ColumnBlock<kTiles> block, u32 begin_k, u32 end_k, const LoadX& load_x,
                      const WeightRow& weight_row) {
  detail::Multiplier<kTiles, LoadX> multiplier{sums, load_x, {}, {}};
  MONO_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    multiplier.weight_rows[t] = weight_row(block.column(t));
    multiplier.column_valid[t] = block.valid(t);
  }
  constexpr u32 kGroup = detail::kStepsInFlight * kMfmaDepth;
  const u32 share = (end_k - begin_k) / kWorkgroupWaves;
  const u32 lane_k = lane() / kMfmaColumns * (kMfmaDepth / 4);
  u32 k = begin_k + wave() * share + lane_k;
  const u32 end = k + share;

  // The next operands are on their way while these are multiplied. Two sets of registers take turns, since a copy would
  // wait for the loads, and no load in the loop is conditional, since the compiler waits for all loads where paths with
  // and without one meet.
  u32 groups = share / kGroup;
  if (groups > 0) {
    detail::Operands<kTiles, detail::kStepsInFlight> even;
    detail::Operands<kTiles, detail::kStepsInFlight> odd;
    multiplier.load(even, k);
    for (; groups > 2; groups -= 2) {
      multiplier.load(odd, k + kGroup);
      multiplier.accumulate(even);
      multiplier.load(even, k + 2 * kGroup);
      multiplier.accumulate(odd);
      k += 2 * kGroup;
    }
    if (groups == 2) multiplier.load(odd, k + kGroup);
    multiplier.accumulate(even);
    if (groups == 2) multiplier.accumulate(odd);
  }
  for (k = end - share % kGroup; k < end; k += kMfmaDepth) {
    detail::Operands<kTiles, 1> single;
    multiplier.load(single, k);
    multiplier.accumulate(single);
  }
}

// Adds the sums of the waves and calls `store(row, column, low, high)` with every pair of columns of the block. All
// threads of the workgroup call it.
template <int kTiles, class Store>
MONO_FN void store_block(const TileSums<kTiles>& sums, ColumnBlock<kTiles> block, u32 rows, LinearShared& shared,
                         const Store& store) {
  const u32 first_row = lane() / kMfmaColumns * 4;
  workgroup_barrier();
  MONO_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    *reinterpret_cast<f32x4*>(&shared.sums[wave()][t * kMfmaColumns + lane() % kMfmaColumns][first_row]) = sums.tile[t];
  }
  workgroup_barrier();
  constexpr u32 kPairs = kTiles * kMfmaColumns / 2;
  const u32 row = thread() / kPairs;
  const u32 column = thread() % kPairs * 2;
  if (row >= rows || block.first + column >= block.end) return;
  f32 low = 0.0f;
  f32 high = 0.0f;
  MONO_UNROLL
  for (u32 w = 0; w < kWorkgroupWaves; ++w) {
    low += shared.sums[w][column][row];
    high += shared.sums[w][column + 1][row];
  }
  store(row, block.first + column, low, high);
}

}  // namespace mono

// The matrix instructions, computed for a whole wave at once.
#include "mono/mfma.h"

namespace mono::detail {

namespace {

// one row of D, or one row of B: 16 columns
using Row = Vec<f32, kMfmaColumns>;
using f32x8 = Vec<f32, 8>;

constexpr u32 kGroups = kWaveLanes / kMfmaColumns;
constexpr u32 kLaneDepth = kMfmaDepth / kGroups;
constexpr u32 kRegisters = kMfmaRows / kGroups;

// Rows of 8 x 8 become columns.
void transpose(f32x8 (&rows)[8]) {
  f32x8 pairs[8];
  for (u32 i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  f32x8 quads[8];
  for (u32 i = 0; i < 8; i += 4) {
    for (u32 half = 0; half < 2; ++half) {
      quads[i + 2 * half] = __builtin_shufflevector(pairs[i + half], pairs[i + half + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      quads[i + 2 * half + 1] =
          __builtin_shufflevector(pairs[i + half], pairs[i + half + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (u32 i = 0; i < 4; ++i) {
    rows[i] = __builtin_shufflevector(quads[i], quads[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(quads[i], quads[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

f32x8 widen(bf16x8 value) {
  const auto bits = __builtin_convertvector(__builtin_bit_cast(Vec<u16, 8>, value), Vec<u32, 8>);
  return __builtin_bit_cast(f32x8, bits << 16);
}

bool all_zero(bf16x8 value) {
  const u32x4 words = __builtin_bit_cast(u32x4, value);
  return (words[0] | words[1] | words[2] | words[3]) == 0;
}

bool all_finite(bf16x8 value) {
  constexpr u16 kExponent = 0x7f80;
  const auto bits = __builtin_bit_cast(Vec<u16, 8>, value);
  return __builtin_reduce_or(__builtin_bit_cast(Vec<short, 8>, (bits & kExponent) == kExponent)) == 0;
}

// D += A B for the four rows from `first`; four at a time hide the latency of the additions.
void multiply_rows(const f32 (&a)[kMfmaRows][kMfmaDepth], const Row (&b)[kMfmaDepth], Row* d, u32 first) {
  Row sums[4] = {d[first], d[first + 1], d[first + 2], d[first + 3]};
  for (u32 k = 0; k < kMfmaDepth; ++k) {
    for (u32 r = 0; r < 4; ++r) sums[r] = __builtin_elementwise_fma(Row(a[first + r][k]), b[k], sums[r]);
  }
  for (u32 r = 0; r < 4; ++r) d[first + r] = sums[r];
}

template <class Frame>
void read_accumulator(void* const* lanes, Row* d) {
  for (u32 l = 0; l < kWaveLanes; ++l) {
    const f32x4 values = static_cast<const Frame*>(lanes[l])->accumulator;
    for (u32 r = 0; r < kRegisters; ++r) d[l / kMfmaColumns * kRegisters + r][l % kMfmaColumns] = values[r];
  }
}

template <class Frame>
void write_accumulator(void* const* lanes, const Row* d) {
  for (u32 l = 0; l < kWaveLanes; ++l) {
    f32x4 values;
    for (u32 r = 0; r < kRegisters; ++r) values[r] = d[l / kMfmaColumns * kRegisters + r][l % kMfmaColumns];
    static_cast<Frame*>(lanes[l])->accumulator = values;
  }
}

}  // namespace

void mfma_bf16_wave(void* const* lanes) {
  const auto frame = [&](u32 lane) -> const Bf16Frame& { return *static_cast<const Bf16Frame*>(lanes[lane]); };
  Row d[kMfmaRows];
  read_accumulator<Bf16Frame>(lanes, d);
  for (int step = 0; step < frame(0).steps; ++step) {
    Row b[kMfmaDepth];
    bool finite = true;
    for (u32 g = 0; g < kGroups; ++g) {
      for (u32 half = 0; half < 2; ++half) {
        f32x8 block[8];
        for (u32 n = 0; n < 8; ++n) {
          const bf16x8 operand = frame(g * kMfmaColumns + half * 8 + n).b[step];
          finite = finite && all_finite(operand);
          block[n] = widen(operand);
        }
        transpose(block);
        for (u32 j = 0; j < kLaneDepth; ++j) {
          for (u32 n = 0; n < 8; ++n) b[g * kLaneDepth + j][half * 8 + n] = block[j][n];
        }
      }
    }
    f32 a[kMfmaRows][kMfmaDepth];
    bool zero[kMfmaRows / 4] = {true, true, true, true};
    for (u32 l = 0; l < kWaveLanes; ++l) {
      const bf16x8 operand = frame(l).a[step];
      const u32 m = l % kMfmaRows;
      zero[m / 4] = zero[m / 4] && all_zero(operand);
      *reinterpret_cast<f32x8*>(&a[m][l / kMfmaRows * kLaneDepth]) = widen(operand);
    }
    for (u32 quad = 0; quad < kMfmaRows / 4; ++quad) {
      // rows past the batch are zero, and add nothing unless B holds an infinity or a NaN
      if (!(zero[quad] && finite)) multiply_rows(a, b, d, quad * 4);
    }
  }
  write_accumulator<Bf16Frame>(lanes, d);
}

namespace {

// K element j (0..31) of the data that a lane holds, as a position in the whole depth
u32 scaled_k(ScaledFormat format, u32 group, u32 j) {
  constexpr u32 kRun = 16;
  if (format == ScaledFormat::kE2m1) return group * kMxBlock + j;
  return j / kRun * (kGroups * kRun) + group * kRun + j % kRun;
}

f32 scaled_element(ScaledFormat format, const ScaledOperand& operand, u32 j) {
  const auto* bytes = reinterpret_cast<const u8*>(&operand.data);
  if (format == ScaledFormat::kE4m3) return e4m3_to_f32(bytes[j]);
  return e2m1_to_f32(bytes[j / 2] >> (4 * (j % 2)) & 0xf);
}

}  // namespace

void mfma_scaled_wave(void* const* lanes) {
  const auto frame = [&](u32 lane) -> const ScaledFrame& { return *static_cast<const ScaledFrame*>(lanes[lane]); };
  const ScaledFormat format = frame(0).format;
  f32 a[kMfmaRows][kScaledMfmaDepth];
  Row b[kScaledMfmaDepth];
  f32 a_scale[kMfmaRows][kGroups];
  Row b_scale[kGroups];
  for (u32 l = 0; l < kWaveLanes; ++l) {
    const u32 index = l % kMfmaColumns;
    const u32 group = l / kMfmaColumns;
    for (u32 j = 0; j < kMxBlock; ++j) {
      const u32 k = scaled_k(format, group, j);
      a[index][k] = scaled_element(format, *frame(l).a, j);
      b[k][index] = scaled_element(format, *frame(l).b, j);
    }
    a_scale[index][group] = e8m0_to_f32(frame(l).a->scale);
    b_scale[group][index] = e8m0_to_f32(frame(l).b->scale);
  }
  Row d[kMfmaRows];
  read_accumulator<ScaledFrame>(lanes, d);
  for (u32 m = 0; m < kMfmaRows; ++m) {
    for (u32 block = 0; block < kGroups; ++block) {
      Row sum = 0.0f;
      for (u32 k = block * kMxBlock; k < (block + 1) * kMxBlock; ++k) {
        sum = __builtin_elementwise_fma(Row(a[m][k]), b[k], sum);
      }
      // one scale after the other: their product may leave the range of fp32 where the result does not
      d[m] += sum * a_scale[m][block] * b_scale[block];
    }
  }
  write_accumulator<ScaledFrame>(lanes, d);
}

}  // namespace mono::detail

// Matrix instructions of one wave: D[16, 16] = A[16, K] B[K, 16] + C, fp32 accumulation.
//
// Lane l holds, with g = l / 16:
//   A operand   row l % 16, the K elements that the operand's comment names
//   B operand   column l % 16, the same K elements
//   C and D     column l % 16, rows 4 g .. 4 g + 3
// The layouts were confirmed with binaries of another compiler (tests/isa). The order in which an instruction adds its
// products is not specified by the hardware; the host adds them one by one with k ascending.
#pragma once

#include "mono/convert.h"
#include "mono/site.h"
#include "mono/thread.h"

namespace mono {

constexpr u32 kMfmaRows = 16;
constexpr u32 kMfmaColumns = 16;
// K of one bf16 instruction; a lane holds the eight elements 8 g .. 8 g + 7
constexpr u32 kMfmaDepth = 32;
// K of one scaled instruction
constexpr u32 kScaledMfmaDepth = 128;

// One operand of a scaled instruction.
//   fp4   32 elements k = 32 g .. 32 g + 31 in words 0..3, low nibble = even k; words 4..7 are ignored
//   fp8   32 elements in two runs: k = 64 c + 16 g + j at byte 16 c + j, c = 0, 1
// The scale code (e8m0) of lane l belongs to row or column l % 16 and K block [32 g, 32 g + 32): for fp8 that is not
// the lane's own data.
struct ScaledOperand {
  i32x8 data;
  u8 scale;
};

enum class ScaledFormat : int { kE4m3 = 0, kE2m1 = 4 };

#if defined(__AMDGCN__)

// kSteps instructions in a row: accumulator += sum over s of A[s] B[s].
template <int kSteps>
MONO_FN f32x4 mfma_bf16(const bf16x8 (&a)[kSteps], const bf16x8 (&b)[kSteps], f32x4 accumulator) {
  MONO_UNROLL
  for (int s = 0; s < kSteps; ++s) {
#if defined(__gfx950__)
    using Operand = Vec<__bf16, 8>;
    accumulator =
        __builtin_amdgcn_mfma_f32_16x16x32_bf16(bits_of<Operand>(a[s]), bits_of<Operand>(b[s]), accumulator, 0, 0, 0);
#else
    // half the depth an instruction; a lane's element j takes part in the first or second half alike in A and B
    using Half = Vec<short, 4>;
    accumulator =
        __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(bits_of<Half>(a[s].lo), bits_of<Half>(b[s].lo), accumulator, 0, 0, 0);
    accumulator =
        __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(bits_of<Half>(a[s].hi), bits_of<Half>(b[s].hi), accumulator, 0, 0, 0);
#endif
  }
  return accumulator;
}

#if defined(__gfx950__)
template <ScaledFormat kFormat>
MONO_FN f32x4 mfma_scaled(const ScaledOperand& a, const ScaledOperand& b, f32x4 accumulator) {
  constexpr int format = static_cast<int>(kFormat);
  return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a.data, b.data, accumulator, format, format, 0, a.scale, 0,
                                                          b.scale);
}
#endif

#else

namespace detail {

struct Bf16Frame {
  const bf16x8* a;
  const bf16x8* b;
  f32x4 accumulator;
  int steps;
};

void mfma_bf16_wave(void* const* lanes);

struct ScaledFrame {
  const ScaledOperand* a;
  const ScaledOperand* b;
  f32x4 accumulator;
  ScaledFormat format;
};

void mfma_scaled_wave(void* const* lanes);

}  // namespace detail

template <int kSteps>
f32x4 mfma_bf16(const bf16x8 (&a)[kSteps], const bf16x8 (&b)[kSteps], f32x4 accumulator, Site site = Site::here()) {
  detail::Bf16Frame frame{a, b, accumulator, kSteps};
  host::wave_collective(&frame, detail::mfma_bf16_wave, "bf16 matrix product", site);
  return frame.accumulator;
}

template <ScaledFormat kFormat>
f32x4 mfma_scaled(const ScaledOperand& a, const ScaledOperand& b, f32x4 accumulator, Site site = Site::here()) {
  detail::ScaledFrame frame{&a, &b, accumulator, kFormat};
  host::wave_collective(&frame, detail::mfma_scaled_wave, "scaled matrix product", site);
  return frame.accumulator;
}

#endif

}  // namespace mono

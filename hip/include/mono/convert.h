// Conversions between fp32 and the narrow formats. All round to nearest, ties to even.
//
//   format    finite maximum   above it         NaN           source
//   bf16      3.39e38          infinity         quiet NaN     truncated IEEE binary32
//   e4m3fn    448              saturates        0x7f          OCP OFP8 (no infinity)
//   e2m1      6                saturates        code of 6     OCP MX (no infinity, no NaN)
//   e8m0      2^127            (scale only)     0xff          OCP MX: value 2^(code - 127)
#pragma once

#include "mono/base.h"
#include "mono/math.h"

namespace mono {

constexpr f32 kE4m3Max = 448.0f;
constexpr u8 kE8m0Nan = 0xff;
// elements of one MX block, along the reduction dimension
constexpr u32 kMxBlock = 32;

namespace detail {

constexpr u32 kF32Sign = 0x80000000u;
constexpr u32 kF32Infinity = 0x7f800000u;
constexpr u32 kF32MantissaBits = 23;
constexpr i32 kF32Bias = 127;

}  // namespace detail

// ---- bf16

MONO_FN f32 to_f32(bf16 value) { return bits_of<f32>(static_cast<u32>(value) << 16); }

MONO_FN bf16 to_bf16(f32 value) {
#if defined(__gfx950__)
  return bits_of<bf16>(static_cast<__bf16>(value));
#else
  const u32 bits = bits_of<u32>(value);
  if ((bits & ~detail::kF32Sign) > detail::kF32Infinity) return static_cast<bf16>(bits >> 16 | 0x40);
  const u32 round = 0x7fff + (bits >> 16 & 1);
  return static_cast<bf16>((bits + round) >> 16);
#endif
}

// two values in one word, `low` in bits 0..15
MONO_FN u32 pack_bf16(f32 low, f32 high) {
  return static_cast<u32>(to_bf16(low)) | static_cast<u32>(to_bf16(high)) << 16;
}

MONO_FN f32 round_to_bf16(f32 value) { return to_f32(to_bf16(value)); }

// ---- e8m0 block scales

// 2^(code - 127); code 0 is the denormal 2^-127, code 0xff is NaN
MONO_FN f32 e8m0_to_f32(u8 code) {
  if (code == kE8m0Nan) return bits_of<f32>(0x7fc00000u);
  if (code == 0) return bits_of<f32>(0x00400000u);
  return bits_of<f32>(static_cast<u32>(code) << detail::kF32MantissaBits);
}

// the smallest power of two that is >= value, for a finite value >= 0; NaN and infinity give NaN
MONO_FN u8 e8m0_ceil(f32 value) {
  const u32 bits = bits_of<u32>(value);
  const u32 exponent = bits >> detail::kF32MantissaBits & 0xff;
  if (exponent == 0xff) return kE8m0Nan;
  const u32 mantissa = bits & ((1u << detail::kF32MantissaBits) - 1);
  if (exponent == 0) return mantissa > 0x400000u ? 1 : 0;
  const u32 code = exponent + (mantissa != 0);
  return code == 0xff ? kE8m0Nan : static_cast<u8>(code);
}

// ---- e4m3fn

MONO_FN f32 e4m3_to_f32(u8 code) {
#if defined(__gfx950__)
  return __builtin_amdgcn_cvt_f32_fp8(code, 0);
#else
  const u32 sign = static_cast<u32>(code & 0x80) << 24;
  const u32 magnitude = code & 0x7f;
  if (magnitude == 0x7f) return bits_of<f32>(sign | 0x7fc00000u);
  constexpr u32 kExponentShift = detail::kF32MantissaBits - 3;
  constexpr u32 kExponentOffset = static_cast<u32>(detail::kF32Bias - 7) << detail::kF32MantissaBits;
  if (magnitude >= 8) return bits_of<f32>(sign | ((magnitude << kExponentShift) + kExponentOffset));
  constexpr f32 kSubnormalUnit = 0x1p-9f;
  const f32 value = static_cast<f32>(magnitude) * kSubnormalUnit;
  return bits_of<f32>(sign | bits_of<u32>(value));
#endif
}

MONO_FN u8 f32_to_e4m3(f32 value) {
  const u32 bits = bits_of<u32>(value);
  const u8 sign = static_cast<u8>(bits >> 24 & 0x80);
  if ((bits & ~detail::kF32Sign) > detail::kF32Infinity) return sign | 0x7f;
#if defined(__gfx950__)
  const f32 clamped = __builtin_amdgcn_fmed3f(value, -kE4m3Max, kE4m3Max);
  return static_cast<u8>(__builtin_amdgcn_cvt_pk_fp8_f32(clamped, 0.0f, 0, false));
#else
  const f32 magnitude = __builtin_fminf(__builtin_fabsf(value), kE4m3Max);
  constexpr f32 kSmallestNormal = 0x1p-6f;
  // adding this rounds a subnormal to a whole number of units of 2^-9 in the low mantissa bits
  constexpr f32 kSubnormalMagic = 0x1p14f;
  if (magnitude < kSmallestNormal) {
    return sign | static_cast<u8>(bits_of<u32>(magnitude + kSubnormalMagic) - bits_of<u32>(kSubnormalMagic));
  }
  constexpr u32 kDropped = detail::kF32MantissaBits - 3;
  const u32 word = bits_of<u32>(magnitude);
  const u32 rounded = word + ((1u << (kDropped - 1)) - 1) + (word >> kDropped & 1);
  constexpr u32 kExponentOffset = static_cast<u32>(detail::kF32Bias - 7) << 3;
  return sign | static_cast<u8>((rounded >> kDropped) - kExponentOffset);
#endif
}

// ---- e2m1

MONO_FN f32 e2m1_to_f32(u32 code) {
  const u32 sign = (code & 8) << 28;
  const u32 magnitude = code & 7;
  // 0 and 0.5 are the subnormals of the format, the rest is 1.m * 2^(e - 1)
  const u32 normal = (magnitude << (detail::kF32MantissaBits - 1)) +
                     (static_cast<u32>(detail::kF32Bias - 1) << detail::kF32MantissaBits);
  const u32 subnormal = magnitude == 0 ? 0 : 0x3f000000u;
  return bits_of<f32>(sign | (magnitude >= 2 ? normal : subnormal));
}

MONO_FN u32 f32_to_e2m1(f32 value) {
  const u32 bits = bits_of<u32>(value);
  const u32 sign = bits >> 28 & 8;
  const f32 magnitude = __builtin_fabsf(value);
  // the midpoints between neighbours; a tie goes to the even code, so the comparison alternates
  u32 code = 0;
  code += magnitude > 0.25f;
  code += magnitude >= 0.75f;
  code += magnitude > 1.25f;
  code += magnitude >= 1.75f;
  code += magnitude > 2.5f;
  code += magnitude >= 3.5f;
  code += magnitude > 5.0f;
  const bool is_nan = (bits & ~detail::kF32Sign) > detail::kF32Infinity;
  return sign | (is_nan ? 7 : code);
}

// Eight values, scaled by 2^-(scale - 127) and packed with value 0 in the lowest nibble.
MONO_FN u32 pack_e2m1(const f32 (&values)[8], u8 scale) {
  const f32 unit = e8m0_to_f32(scale);
#if defined(__gfx950__)
  u32 packed = 0;
  packed = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(packed, values[0], values[1], unit, 0);
  packed = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(packed, values[2], values[3], unit, 1);
  packed = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(packed, values[4], values[5], unit, 2);
  packed = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(packed, values[6], values[7], unit, 3);
  return packed;
#else
  u32 packed = 0;
  for (u32 i = 0; i < 8; ++i) packed |= f32_to_e2m1(values[i] / unit) << (4 * i);
  return packed;
#endif
}

}  // namespace mono

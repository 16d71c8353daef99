// Scalar functions in fp32. exp2, log2, rcp and rsqrt are the device's own instructions (about 1 ulp) and correctly
// rounded libm calls on the host, so results that pass through them agree to a few ulp, not bit for bit.
#pragma once

#include "mono/base.h"

namespace mono {

constexpr f32 kLog2E = 1.44269504088896340736f;

MONO_FN f32 fma(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }

MONO_FN f32 exp2(f32 x) {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_exp2f(x);
#else
  return __builtin_exp2f(x);
#endif
}

MONO_FN f32 log2(f32 x) {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_logf(x);
#else
  return __builtin_log2f(x);
#endif
}

MONO_FN f32 rcp(f32 x) {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_rcpf(x);
#else
  return 1.0f / x;
#endif
}

MONO_FN f32 rsqrt(f32 x) {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_rsqf(x);
#else
  return 1.0f / __builtin_sqrtf(x);
#endif
}

MONO_FN f32 exp(f32 x) { return exp2(x * kLog2E); }

// 1 / (1 + e^-x); 0 and 1 at the far ends, NaN for NaN.
MONO_FN f32 sigmoid(f32 x) { return rcp(1.0f + exp(-x)); }

// x * sigmoid(x)
MONO_FN f32 silu(f32 x) { return x * sigmoid(x); }

}  // namespace mono

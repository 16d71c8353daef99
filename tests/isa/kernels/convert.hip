// Conversions between float32 and the narrow formats, one value a thread.
#include "device.h"

KERNEL narrow(const f32* in, bf16* to_bf16, u8* to_fp8, u8* to_bf8) {
  const u32 i = workgroup() * 256 + thread();
  to_bf16[i] = static_cast<bf16>(in[i]);
  to_fp8[i] = __builtin_amdgcn_cvt_pk_fp8_f32(0, in[i], 0, true) >> 24;
  to_bf8[i] = __builtin_amdgcn_cvt_pk_bf8_f32(in[i], 0, 0, false);
}

KERNEL widen(const u8* codes, f32* from_fp8, f32* from_bf8, f32* from_fp8_pair) {
  const u32 i = thread(), word = codes[i] << 16 | 0x3400;
  from_fp8[i] = __builtin_amdgcn_cvt_f32_fp8(word, 2);
  from_bf8[i] = __builtin_amdgcn_cvt_f32_bf8(word, 2);
  from_fp8_pair[i] =
      __builtin_amdgcn_cvt_pk_f32_fp8(word, true)[0] + 0 * __builtin_amdgcn_cvt_pk_f32_fp8(word, false)[1];
}

// four pairs to one word, each pair into its byte; and back
KERNEL fp4(const f32* in, const f32* scale, u32* packed, f32* back) {
  const u32 i = thread();
  const f32* x = in + 8 * i;
  const f32 s = scale[i];
  u32 word = 0;
  word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, x[0], x[1], s, 0);
  word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, x[2], x[3], s, 1);
  word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, x[4], x[5], s, 2);
  word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, x[6], x[7], s, 3);
  packed[i] = word;
  const auto a = __builtin_amdgcn_cvt_scalef32_pk_f32_fp4(word, s, 0),
             b = __builtin_amdgcn_cvt_scalef32_pk_f32_fp4(word, s, 3);
  back[4 * i] = a[0];
  back[4 * i + 1] = a[1];
  back[4 * i + 2] = b[0];
  back[4 * i + 3] = b[1];
}

// pairs of bf16 to fp4 and back; the second pair goes to the third byte
KERNEL fp4_bf16(const u32* in, const f32* scale, u32* packed, u32* back) {
  using Pair = Vec<bf16, 2>;
  const u32 i = thread();
  const f32 s = scale[i];
  u32 word = 0;
  word = __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(word, __builtin_bit_cast(Pair, in[2 * i]), s, 0);
  word = __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(word, __builtin_bit_cast(Pair, in[2 * i + 1]), s, 2);
  packed[i] = word;
  const auto pair = __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(word, s, 2);
  back[i] = __builtin_bit_cast(u32, pair);
}

KERNEL functions(const f32* in, f32* out) {
  const u32 i = thread();
  const f32 x = in[i];
  out[8 * i] = __builtin_amdgcn_exp2f(x);
  out[8 * i + 1] = __builtin_amdgcn_logf(__builtin_fabsf(x));
  out[8 * i + 2] = __builtin_amdgcn_rcpf(x);
  out[8 * i + 3] = __builtin_amdgcn_rsqf(__builtin_fabsf(x));
  out[8 * i + 4] = __builtin_amdgcn_sqrtf(__builtin_fabsf(x));
  out[8 * i + 5] = __builtin_amdgcn_fmed3f(x, -1.5f, 2.5f);
  out[8 * i + 6] = __builtin_amdgcn_fractf(x);
  out[8 * i + 7] = __builtin_fminf(x, __builtin_fmaxf(in[i ^ 1], 0.25f));
}

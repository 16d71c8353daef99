// One matrix instruction of each kind with the operands in the layout of toolchain.md section 6.3, and with layouts
// that are wrong on purpose.
#include "device.h"

using f32x4 = Vec<f32, 4>;
using bf16x8 = Vec<bf16, 8>;
using i32x8 = Vec<i32, 8>;

// c[16, 16] = a[16, 32] b[16, 32]^T
KERNEL bf16_product(const bf16* a, const bf16* b, f32* c) {
  const u32 row = lane() % 16, group = lane() / 16;
#if defined(SWAPPED_LAYOUT)
  // the elements of a lane as they would lie if consecutive k went to consecutive lane groups
  bf16x8 x;
  for (u32 j = 0; j < 8; ++j) x[j] = a[row * 32 + 4 * j + group];
#else
  const bf16x8 x = *reinterpret_cast<const bf16x8*>(a + row * 32 + 8 * group);
#endif
  const bf16x8 y = *reinterpret_cast<const bf16x8*>(b + row * 32 + 8 * group);
  const f32x4 d = __builtin_amdgcn_mfma_f32_16x16x32_bf16(x, y, f32x4{0, 0, 0, 0}, 0, 0, 0);
  for (u32 r = 0; r < 4; ++r) c[(4 * group + r) * 16 + row] = d[r];
}

// c[16, 16] = (a * scales)[16, 128] (b * scales)[16, 128]^T, fp4 packed two to a byte, one e8m0 scale to 32 elements
KERNEL fp4_product(const u8* a, const u8* a_scale, const u8* b, const u8* b_scale, f32* c) {
  const u32 row = lane() % 16, group = lane() / 16;
  i32x8 x{}, y{};
  for (u32 i = 0; i < 4; ++i) {
    x[i] = reinterpret_cast<const i32*>(a + row * 64 + 16 * group)[i];
    y[i] = reinterpret_cast<const i32*>(b + row * 64 + 16 * group)[i];
  }
#if defined(SCALE_OF_THE_NEXT_BLOCK)
  const u32 block = (group + 1) % 4;
#else
  const u32 block = group;
#endif
  constexpr int kFp4 = 4;
  const f32x4 d = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
      x, y, f32x4{0, 0, 0, 0}, kFp4, kFp4, 0, a_scale[row * 4 + block], 0, b_scale[row * 4 + group]);
  for (u32 r = 0; r < 4; ++r) c[(4 * group + r) * 16 + row] = d[r];
}

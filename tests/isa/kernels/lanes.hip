// Every way in which lanes exchange values. Each case writes one row of 64 results; out[case][lane].
#include "device.h"

// what a lane keeps when its source does not exist
constexpr i32 kOld = 1000;

template <int kControl, int kRowMask = 0xf, int kBankMask = 0xf, bool kZero = false>
DEVICE void dpp(u32*& out, i32 value) {
  out[lane()] = __builtin_amdgcn_update_dpp(kOld, value, kControl, kRowMask, kBankMask, kZero);
  out += 64;
}

template <int kPattern>
DEVICE void swizzle(u32*& out, i32 value) {
  out[lane()] = __builtin_amdgcn_ds_swizzle(value, kPattern);
  out += 64;
}

KERNEL dpp_controls(const u32* in, u32* out) {
  const i32 x = in[lane()];
  dpp<0x1b>(out, x);
  dpp<0xb1>(out, x);
  dpp<0x101>(out, x);
  dpp<0x10f>(out, x);
  dpp<0x111>(out, x);
  dpp<0x118>(out, x);
  dpp<0x121>(out, x);
  dpp<0x12c>(out, x);
  dpp<0x130>(out, x);
  dpp<0x134>(out, x);
  dpp<0x138>(out, x);
  dpp<0x13c>(out, x);
  dpp<0x140>(out, x);
  dpp<0x141>(out, x);
  dpp<0x142>(out, x);
  dpp<0x143>(out, x);
  dpp<0x150>(out, x);
  dpp<0x15d>(out, x);
  dpp<0x111, 0xf, 0xf, true>(out, x);
  dpp<0x142, 0xa>(out, x);
  dpp<0x114, 0xf, 0xe>(out, x);
}

// only the lanes of `active` are switched on
KERNEL dpp_with_inactive_lanes(const u32* in, u32* out, u64 active) {
  const i32 x = in[lane()];
  if (active >> lane() & 1) {
    dpp<0x111>(out, x);
    dpp<0x111, 0xf, 0xf, true>(out, x);
    dpp<0x140>(out, x);
  }
}

KERNEL swizzles(const u32* in, u32* out) {
  const i32 x = in[lane()];
  swizzle<0x041f>(out, x);
  swizzle<0x401f>(out, x);
  swizzle<0x001c>(out, x);
  swizzle<0x00a3>(out, x);
  swizzle<0x801b>(out, x);
  swizzle<0x80ff>(out, x);
}

KERNEL permutes(const u32* in, const u32* index, u32* out) {
  const i32 x = in[lane()];
  const i32 address = index[lane()] * 4;
  out[lane()] = __builtin_amdgcn_ds_bpermute(address, x);
  out[64 + lane()] = __builtin_amdgcn_ds_permute(address, x);
  const auto rows = __builtin_amdgcn_permlane16_swap(x, x + 100, false, false);
  out[128 + lane()] = rows[0];
  out[192 + lane()] = rows[1];
  const auto halves = __builtin_amdgcn_permlane32_swap(x, x + 100, false, false);
  out[256 + lane()] = halves[0];
  out[320 + lane()] = halves[1];
}

// lanes below `first` are switched off while lanes are read
KERNEL reads(const u32* in, u32* out, u32 first, u32 chosen) {
  const i32 x = in[lane()];
  u32 head = 0, one = 0;
  u64 odd = 0;
  u32 below = 0;
  if (lane() >= first) {
    head = __builtin_amdgcn_readfirstlane(x);
    one = __builtin_amdgcn_readlane(x, chosen);
    odd = __builtin_amdgcn_ballot_w64(x & 1);
    below = __builtin_amdgcn_mbcnt_hi(odd >> 32, __builtin_amdgcn_mbcnt_lo(odd, 5));
  }
  out[lane()] = head;
  out[64 + lane()] = one;
  out[128 + lane()] = odd >> (lane() % 2 * 32);
  out[192 + lane()] = below;
  // there is no builtin for it
  i32 patched = x;
  asm("v_writelane_b32 %0, %1, %2" : "+v"(patched) : "i"(57), "s"(chosen));
  out[256 + lane()] = patched;
}

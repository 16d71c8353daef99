// What the test kernels of this folder share. They use clang's builtins only, nothing of the product.
#pragma once

#define DEVICE __attribute__((device)) inline
#define KERNEL extern "C" __attribute__((global)) void
#define LDS __attribute__((shared)) static

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned;
using i32 = int;
using u64 = unsigned long;
using f32 = float;
using f64 = double;
using bf16 = __bf16;
template <class T, int kCount>
using Vec = T __attribute__((ext_vector_type(kCount)));

DEVICE u32 thread() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 lane() { return thread() % 64; }
DEVICE u32 workgroup() { return __builtin_amdgcn_workgroup_id_x(); }

DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

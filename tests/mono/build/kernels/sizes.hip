// Kernels that each ask for much of one resource, or for little.

using f32x16 = float __attribute__((ext_vector_type(16)));

#define KERNEL(name, threads, ...) \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads))) void name(__VA_ARGS__)

static __attribute__((device)) unsigned thread() { return __builtin_amdgcn_workitem_id_x(); }

// holds kCount registers of a lane at once
template <int kCount>
static __attribute__((device, always_inline)) void hold(float* x) {
  f32x16 held[kCount / 16];
  for (int i = 0; i < kCount / 16; ++i) held[i] = x[i * 1024 + thread()];
  for (int i = 0; i < kCount / 16; ++i) asm volatile("" : "+v"(held[i]));
  for (int i = 0; i < kCount / 16; ++i) asm volatile("" ::"v"(held[i]));
}

KERNEL(small, 256, float* x, int count) { x[thread()] += float(count); }

KERNEL(many_registers, 256, float* x) { hold<160>(x); }

KERNEL(indexed_array, 256, float* x, int index) {
  float held[64];
  for (int i = 0; i < 64; ++i) held[i] = x[i * 256 + thread()];
  x[thread()] = held[index];
}

KERNEL(accumulators, 256, float* x) {
  f32x16 sum = x[thread()];
  asm volatile("" : "+a"(sum));
  x[thread()] = sum[3];
}

KERNEL(large_lds, 256, float* x, int index) {
  static __attribute__((shared)) float tile[12 * 1024];
  tile[thread()] = x[thread()];
  __builtin_amdgcn_s_barrier();
  x[thread()] = tile[index];
}

KERNEL(full_workgroup, 1024, float* x) { hold<160>(x); }

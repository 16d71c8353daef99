// A kernel that passes every gate; test_gates.py breaks it one place at a time.

using f32x2 = float __attribute__((ext_vector_type(2)));
using f32x4 = float __attribute__((ext_vector_type(4)));

template <class T>
using Global = __attribute__((address_space(1))) T*;

struct Args {
  const void** table;
  float* out;
  int index;
};

extern "C" __attribute__((global, amdgpu_flat_work_group_size(256, 256))) void clean(Args args) {
  static __attribute__((shared)) float tile[256];
  const unsigned thread = __builtin_amdgcn_workitem_id_x();

  // the table is rewritten while the kernel runs, so nothing tells the compiler where its pointers lead.
  args.table[thread] = args.out + thread;
  __builtin_amdgcn_s_barrier();
  auto weights = (Global<const f32x4>)args.table[args.index];
  const f32x4 weight = __builtin_nontemporal_load(weights + thread);

  tile[thread] = weight.x + weight.w;

  asm volatile("buffer_wbl2 sc1" ::: "memory");
  __builtin_amdgcn_s_barrier();
  asm volatile("buffer_inv sc1" ::: "memory");
  args.out[thread] = tile[255 - thread];
}

// A phase for every primitive of hip/include/mono: each thread feeds its own values to it and stores what comes back.
//
// A workgroup works on its own block of kWorkgroupThreads inputs and outputs.
#include "mono/convert.h"
#include "mono/mfma.h"
#include "mono/program.h"
#include "mono/wave.h"

namespace mono {

MONO_FN i64 own(const Grid& grid) { return static_cast<i64>(grid.index()) * kWorkgroupThreads + thread(); }

struct WaveOperations {
  static constexpr char kName[] = "wave_operations";
  static constexpr u32 kResults = 9;

  struct Args {
    // [threads] in
    Global<const f32> x;
    // [threads] in: source lane of a read, at most 63
    Global<const u32> source;
    // [threads, kResults] out
    Global<f32> floats;
    // [threads, 2] out
    Global<u64> masks;

    MONO_FIELDS(Args, x, source, floats, masks)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    const i64 i = own(grid);
    const f32 x = args.x.load(i);
    const u32 source = args.source.load(i);
    const Global<f32> out = args.floats + i * kResults;
    out.store(0, wave_read(x, source));
    out.store(1, wave_xor(x, 21));
    out.store(2, wave_sum(x));
    out.store(3, wave_sum<16>(x));
    out.store(4, wave_sum<2>(x));
    out.store(5, wave_max(x));
    out.store(6, wave_max<32>(x));
    out.store(7, wave_max<4>(x));
    out.store(8, wave_sum<8>(x));
    args.masks.store(2 * i, wave_ballot(x > 0.0f));
    args.masks.store(2 * i + 1, wave_read(source, source));
  }
};

struct Conversions {
  static constexpr char kName[] = "conversions";
  static constexpr u32 kResults = 12;

  struct Args {
    // [threads] in
    Global<const f32> x;
    // [threads] in: codes, of which each format takes its low bits
    Global<const u32> codes;
    // [threads, kResults] out: bits
    Global<u32> results;

    MONO_FIELDS(Args, x, codes, results)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    const i64 i = own(grid);
    const f32 x = args.x.load(i);
    const u32 code = args.codes.load(i);
    const Global<u32> out = args.results + i * kResults;
    out.store(0, bits_of<u16>(to_bf16(x)));
    out.store(1, pack_bf16(x, -2.0f * x));
    out.store(2, bits_of<u32>(round_to_bf16(x)));
    out.store(3, bits_of<u32>(to_f32(bits_of<bf16>(static_cast<u16>(code)))));
    out.store(4, bits_of<u32>(e8m0_to_f32(static_cast<u8>(code))));
    out.store(5, e8m0_ceil(__builtin_fabsf(x)));
    out.store(6, bits_of<u32>(e4m3_to_f32(static_cast<u8>(code))));
    out.store(7, f32_to_e4m3(x));
    out.store(8, bits_of<u32>(e2m1_to_f32(code & 15)));
    out.store(9, f32_to_e2m1(x));
    const f32 values[8] = {x, -x, 2 * x, 0.5f * x, 0.0f, 3 * x, 0.25f * x, -4 * x};
    // the middle of the scales, away from those whose products leave the range of fp32
    out.store(10, pack_e2m1(values, static_cast<u8>(96 + code % 64)));
    out.store(11, bits_of<u32>(fma(x, x, -x)));
  }
};

struct Functions {
  static constexpr char kName[] = "functions";
  static constexpr u32 kResults = 7;

  struct Args {
    // [threads] in
    Global<const f32> x;
    // [threads, kResults] out
    Global<f32> results;

    MONO_FIELDS(Args, x, results)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    const i64 i = own(grid);
    const f32 x = args.x.load(i);
    const Global<f32> out = args.results + i * kResults;
    out.store(0, exp2(x));
    out.store(1, log2(__builtin_fabsf(x)));
    out.store(2, rcp(x));
    out.store(3, rsqrt(__builtin_fabsf(x)));
    out.store(4, exp(x));
    out.store(5, sigmoid(x));
    out.store(6, silu(x));
  }
};

// One product a wave; a and b are [waves, 16, K], c and d [waves, 16, 16].
struct MatrixProducts {
  static constexpr char kName[] = "matrix_products";
  static constexpr int kSteps = 2;

  struct Args {
    // K = kSteps * 32
    Global<const bf16> a;
    Global<const bf16> b;
    // K = 128: two to a byte
    Global<const u8> a_fp4;
    Global<const u8> b_fp4;
    // K = 128
    Global<const u8> a_fp8;
    Global<const u8> b_fp8;
    // [waves, 16, 4] in: one scale to 32 elements
    Global<const u8> a_scale;
    Global<const u8> b_scale;
    Global<const f32> c;
    // [3] of them, one for each kind of operand
    Global<f32> d;
    u32 waves;
    u32 reserved;

    MONO_FIELDS(Args, a, b, a_fp4, b_fp4, a_fp8, b_fp8, a_scale, b_scale, c, d, waves, reserved)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    const u32 index = grid.wave_index();
    if (index >= args.waves) return;
    const u32 row = lane() % kMfmaRows, group = lane() / kMfmaRows;
    const i64 matrix_row = static_cast<i64>(index) * kMfmaRows + row;

    f32x4 addend;
    for (u32 r = 0; r < 4; ++r) addend[r] = args.c.load(element(index, 4 * group + r, row));
    bf16x8 a[kSteps], b[kSteps];
    for (u32 s = 0; s < kSteps; ++s) {
      a[s] = args.a.load_vec<8>(matrix_row * kSteps * kMfmaDepth + s * kMfmaDepth + 8 * group);
      b[s] = args.b.load_vec<8>(matrix_row * kSteps * kMfmaDepth + s * kMfmaDepth + 8 * group);
    }
    store(args, 0, index, row, group, mfma_bf16(a, b, addend));
    const u8 a_scale = args.a_scale.load(matrix_row * 4 + group), b_scale = args.b_scale.load(matrix_row * 4 + group);
    const ScaledOperand a_fp4{fp4(args.a_fp4, matrix_row, group), a_scale};
    const ScaledOperand b_fp4{fp4(args.b_fp4, matrix_row, group), b_scale};
    store(args, 1, index, row, group, mfma_scaled<ScaledFormat::kE2m1>(a_fp4, b_fp4, addend));
    const ScaledOperand a_fp8{fp8(args.a_fp8, matrix_row, group), a_scale};
    const ScaledOperand b_fp8{fp8(args.b_fp8, matrix_row, group), b_scale};
    store(args, 2, index, row, group, mfma_scaled<ScaledFormat::kE4m3>(a_fp8, b_fp8, addend));
  }

 private:
  MONO_FN static i64 element(u32 index, u32 row, u32 column) {
    return (static_cast<i64>(index) * kMfmaRows + row) * kMfmaColumns + column;
  }

  MONO_FN static void store(const Args& args, u32 kind, u32 index, u32 row, u32 group, f32x4 value) {
    for (u32 r = 0; r < 4; ++r) args.d.store(element(kind * args.waves + index, 4 * group + r, row), value[r]);
  }

  MONO_FN static i32x8 fp4(Global<const u8> data, i64 matrix_row, u32 group) {
    const auto words = Global<const i32>{reinterpret_cast<const i32*>(data.address)};
    i32x8 operand{};
    operand.lo = words.load_vec<4>(matrix_row * 16 + 4 * group);
    return operand;
  }

  MONO_FN static i32x8 fp8(Global<const u8> data, i64 matrix_row, u32 group) {
    const auto words = Global<const i32>{reinterpret_cast<const i32*>(data.address)};
    i32x8 operand{};
    operand.lo = words.load_vec<4>(matrix_row * 32 + 4 * group);
    operand.hi = words.load_vec<4>(matrix_row * 32 + 16 + 4 * group);
    return operand;
  }
};

struct MemoryAccesses {
  static constexpr char kName[] = "memory_accesses";

  struct Args {
    // [threads, 4] in
    Global<const u32> x;
    // [threads, 4] out
    Global<u32> copied;
    // [threads, 4] out
    Global<u32> streamed;
    // [threads] out
    Global<u32> published;
    // [4] in and out: a sum, a word that one thread claims, the claims that failed, the largest old value of the sum
    Global<u32> words;

    MONO_FIELDS(Args, x, copied, streamed, published, words)
  };
  struct Shared {
    u32 block[kWorkgroupThreads];
    u32 exchange[kWorkgroupThreads];
  };

  MONO_FN static void run(const Args& args, Shared& shared, const Grid& grid) {
    const i64 i = own(grid);
    args.copied.store_vec(4 * i, args.x.load_vec<4>(4 * i) + 1);
    args.streamed.store_vec(4 * i, args.x.stream<4>(4 * i) ^ 5);
    // another wave's value through LDS, then another lane's of the same wave
    shared.block[thread()] = args.x.load(4 * i);
    workgroup_barrier();
    shared.exchange[thread()] = shared.block[kWorkgroupThreads - 1 - thread()];
    wave_sync();
    args.published.publish(i, shared.exchange[thread() ^ 1]);

    fetch_add_release<Scope::kAgent>(args.words, thread());
    if (!compare_exchange<Scope::kSystem>(args.words + 1, 0, 7)) fetch_add_release<Scope::kSystem>(args.words + 2, 1);
  }
};

// Every workgroup writes its index; after a grid barrier each adds up what all have written.
struct GridExchange {
  static constexpr char kName[] = "grid_exchange";

  struct Args {
    // [workgroups] scratch
    Global<u32> parts;
    // [workgroups] out
    Global<u32> sums;
    u32 rounds;
    u32 reserved;

    MONO_FIELDS(Args, parts, sums, rounds, reserved)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    // a phase has no barrier of its own: the program's barrier separates its entries, `rounds` tells them apart
    if (thread() != 0) return;
    if (args.rounds % 2 == 0) {
      args.parts.publish(grid.index(), args.rounds + 1 + grid.index());
    } else {
      u32 sum = args.sums.load(grid.index());
      for (u32 w = 0; w < grid.size(); ++w) sum = sum * 3 + load_relaxed<Scope::kAgent>(args.parts + w);
      args.sums.store(grid.index(), sum);
    }
  }
};

using Primitives = Program<WaveOperations, Conversions, Functions, MatrixProducts, MemoryAccesses, GridExchange>;

}  // namespace mono

MONO_PROGRAM_KERNEL(primitives_step, mono::Primitives)

// A phase whose frame does not fit on a fiber's stack; alone in its kernel, as a frame is that of all phases of one.
#include "mono/program.h"

namespace mono {

struct UseStack {
  static constexpr char kName[] = "use_stack";

  struct Args {
    Global<u32> out;

    MONO_FIELDS(Args, out)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid&) {
    volatile u32 words[9 * 1024];
    for (u32 i = 0; i < sizeof(words) / sizeof(u32); ++i) words[i] = i;
    args.out.store(0, words[3]);
  }
};

}  // namespace mono

using Overflow = mono::Program<mono::UseStack>;

MONO_PROGRAM_KERNEL(overflow_step, Overflow)

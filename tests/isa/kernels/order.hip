// Every way in which the workgroups of a launch, and ranks, hand data to each other.
#include "mono/program.h"

namespace mono {

// Data of any workgroup for all others, through LDS on its way; and data that a later launch reads.
struct Give {
  static constexpr char kName[] = "give";

  struct Args {
    // [workgroups, threads] out
    Global<u32> cells;
    // [workgroups, threads] out
    Global<u32> kept;
    u32 value;
    u32 reserved;

    MONO_FIELDS(Args, cells, kept, value, reserved)
  };
  struct Shared {
    u32 values[kWorkgroupThreads];
  };

  MONO_FN static void run(const Args& args, Shared& shared, const Grid& grid) {
    const u32 i = grid.index() * kWorkgroupThreads + thread();
    shared.values[thread()] = args.value + i;
    workgroup_barrier();
    const u32 value = shared.values[kWorkgroupThreads - 1 - thread()];
    args.cells.publish(i, value);
    args.kept.store(i, value);
  }
};

// The sum of what all workgroups gave.
struct Take {
  static constexpr char kName[] = "take";

  struct Args {
    // [workgroups, threads] in
    Global<const u32> cells;
    // [workgroups, threads] out
    Global<u32> sums;

    MONO_FIELDS(Args, cells, sums)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    u32 sum = 0;
    for (u32 g = 0; g < grid.size(); ++g) sum += args.cells.load(g * kWorkgroupThreads + thread());
    args.sums.store(grid.index() * kWorkgroupThreads + thread(), sum);
  }
};

// Workgroup 0 sends a word a thread to a peer and raises its flag.
struct Send {
  static constexpr char kName[] = "send";

  struct Args {
    // [threads] out, of the peer
    Global<u32> inbox;
    Global<u32> flag;
    u32 value;
    u32 epoch;

    MONO_FIELDS(Args, inbox, flag, value, epoch)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    if (grid.index() != 0) return;
    args.inbox.publish(thread(), args.value + thread());
    complete_stores();
    workgroup_barrier();
    if (thread() == 0) store_release<Scope::kSystem>(args.flag, args.epoch);
  }
};

// Every workgroup waits for the peer's words.
struct Receive {
  static constexpr char kName[] = "receive";

  struct Args {
    // [threads] in
    Global<const u32> inbox;
    Global<u32> flag;
    // [workgroups, threads] out
    Global<u32> received;
    u32 epoch;
    u32 reserved;

    MONO_FIELDS(Args, inbox, flag, received, epoch, reserved)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    if (wave() == 0) grid.wait_for<Scope::kSystem>(args.flag, args.epoch);
    workgroup_barrier();
    args.received.store(grid.index() * kWorkgroupThreads + thread(), args.inbox.load(thread()));
  }
};

}  // namespace mono

using Order = mono::Program<mono::Give, mono::Take, mono::Send, mono::Receive>;

MONO_PROGRAM_KERNEL(order_step, Order)

// Phases that do what a kernel must not, or that show in which order the executor runs them.
#include "mono/program.h"
#include "mono/wave.h"

namespace mono {

// Lanes or threads that do not come to the same operation; `mode` says which mistake.
struct Diverge {
  static constexpr char kName[] = "diverge";

  struct Args {
    Global<f32> out;
    u32 mode;
    u32 reserved;

    MONO_FIELDS(Args, out, mode, reserved)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid&) {
    f32 value = 1.0f;
    if (args.mode == 0) {
      if (lane() < 32) {
        value = wave_sum(value);
      } else {
        value = wave_max(value);
      }
    }
    if (args.mode == 1) {
      if (thread() == 5) return;
      workgroup_barrier();
    }
    if (args.mode == 2) {
      if (thread() < 128) {
        workgroup_barrier();
      } else {
        workgroup_barrier();
      }
    }
    if (args.mode == 3 && thread() != 7) value = wave_sum(value);
    args.out.store(thread(), value);
  }
};

// Every workgroup takes a ticket: the order in which they run.
struct TakeTicket {
  static constexpr char kName[] = "take_ticket";

  struct Args {
    // one word, in and out
    Global<u32> counter;
    // [workgroups, waves] out
    Global<u32> tickets;

    MONO_FIELDS(Args, counter, tickets)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    if (lane() != 0) return;
    args.tickets.store(grid.index() * kWorkgroupWaves + wave(), fetch_add_release<Scope::kAgent>(args.counter, 1));
  }
};

// Shows LDS as the phase finds it, then leaves something there.
struct ReadLds {
  static constexpr char kName[] = "read_lds";

  struct Args {
    // [threads] out
    Global<f32> out;

    MONO_FIELDS(Args, out)
  };
  struct Shared {
    f32 values[kWorkgroupThreads];
  };

  MONO_FN static void run(const Args& args, Shared& shared, const Grid&) {
    args.out.store(thread(), shared.values[thread()]);
    shared.values[thread()] = 1.0f;
  }
};

// Waits until a flag reaches an epoch, in one wave of every workgroup from `first` on.
struct WaitForFlag {
  static constexpr char kName[] = "wait_for_flag";

  struct Args {
    Global<u32> flag;
    u32 epoch;
    u32 first;

    MONO_FIELDS(Args, flag, epoch, first)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    if (grid.index() < args.first || wave() != 0) return;
    grid.wait_for<Scope::kSystem>(args.flag, args.epoch);
  }
};

// Raises a flag.
struct RaiseFlag {
  static constexpr char kName[] = "raise_flag";

  struct Args {
    Global<u32> flag;
    u32 epoch;
    u32 reserved;

    MONO_FIELDS(Args, flag, epoch, reserved)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    if (grid.index() == 0 && thread() == 0) store_release<Scope::kSystem>(args.flag, args.epoch);
  }
};

// Thread 0 waits for a flag that thread 200 of the same workgroup raises: a waiting thread must not keep the others
// from running.
struct WaitForNeighbour {
  static constexpr char kName[] = "wait_for_neighbour";

  struct Args {
    // [workgroups] zero, in and out
    Global<u32> flags;

    MONO_FIELDS(Args, flags)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    const Global<u32> flag = args.flags + grid.index();
    if (wave() == 0) grid.wait_for<Scope::kAgent>(flag, 1);
    if (thread() == 200) store_release<Scope::kAgent>(flag, 1);
  }
};

// Each workgroup puts its index where, after a barrier, all others read it.
struct Put {
  static constexpr char kName[] = "put";

  struct Args {
    // [workgroups] out
    Global<u32> cells;
    u32 value;
    u32 reserved;

    MONO_FIELDS(Args, cells, value, reserved)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    if (thread() == 0) args.cells.publish<u32>(grid.index(), args.value + grid.index());
  }
};

struct Take {
  static constexpr char kName[] = "take";

  struct Args {
    // [workgroups] in
    Global<const u32> cells;
    // [workgroups] out: the sum of all cells
    Global<u32> sums;

    MONO_FIELDS(Args, cells, sums)
  };
  struct Shared {};

  MONO_FN static void run(const Args& args, Shared&, const Grid& grid) {
    if (thread() != 0) return;
    u32 sum = 0;
    for (u32 i = 0; i < grid.size(); ++i) sum += args.cells.load(i);
    args.sums.store(grid.index(), sum);
  }
};

}  // namespace mono

using Executor = mono::Program<mono::Diverge, mono::TakeTicket, mono::ReadLds, mono::WaitForFlag, mono::RaiseFlag,
                               mono::WaitForNeighbour, mono::Put, mono::Take>;

MONO_PROGRAM_KERNEL(executor_step, Executor)

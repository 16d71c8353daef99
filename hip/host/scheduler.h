// The scheduler behind executor.h: workgroups, waves and lanes of one run, and who of them may go on.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "host/executor.h"
#include "host/run.h"

namespace mono::host {

enum class State : u8 { kReady, kInWaveOperation, kAtBarrier, kWaiting, kDone };

struct Workgroup;
struct Wave;

struct Lane : Fiber {
  Wave* wave;
  u8* stack;
  State state;
  // what the lane last stopped at
  Site site;
  const char* operation;
  // while kWaiting
  const u32* word;
  u32 epoch;
  u64 deadline;
  bool timed_out;
};

struct Wave {
  Workgroup* workgroup;
  Lane* lanes;
  u32 ready_lanes;
  // lanes that have come to the current wave operation
  u32 arrived;
  void* frames[kWaveLanes];
};

struct Workgroup {
  const Kernel* kernel;
  const MonoHostLaunch* launch;
  u32 launch_index;
  u32 index;
  Wave* waves;
  Lane* lanes;
  u8* shared;
  PhaseCounters* counters;
  u32 ready_waves;
  u32 last_wave;
  // threads that have come to the current barrier, to the current phase, to the end
  u32 arrived;
  u32 entered;
  u32 done;
  bool queued;
};

class Scheduler {
 public:
  // `launches` are as many as `kernels` and outlive the scheduler.
  Scheduler(const MonoHostLaunch* launches, const std::vector<const Kernel*>& kernels, const MonoHostOptions& options,
            u8* stacks);

  int run();

  // The calls of executor.h, made by the running fiber.
  void wave_collective(void* frame, Combine combine, const char* operation, Site site);
  void workgroup_barrier(Site site);
  void written(const u32* word);
  void count_line(u64 line);
  bool wait_until_reached(const u32* word, u32 epoch, u64 deadline_ticks);
  void enter_phase(u32 phase);
  [[noreturn]] void stop_launch();
  [[noreturn]] void run_lane();

 private:
  void add_workgroup(const MonoHostLaunch& launch, const Kernel& kernel, u32 launch_index, u32 index, u64 position,
                     u8* stacks);
  void run_workgroup(Workgroup& workgroup);
  Wave& choose_wave(Workgroup& workgroup);
  void check_blocked(const Workgroup& workgroup);
  void suspend(State state);
  void enqueue(Workgroup& workgroup);
  void make_ready(Lane& lane);
  void wake_reached(const u32* word);
  void wait_for_peers();
  void report_deadlock();
  [[noreturn]] void fail_running(int status, const std::string& message);
  void fail(int status, const std::string& message);
  u64 choose(u64 bound);

  MonoHostOptions options_;
  u64 random_;
  int status_ = kMonoHostOk;
  void* scheduler_stack_ = nullptr;
  u64 unfinished_workgroups_ = 0;
  std::vector<Workgroup> workgroups_;
  std::vector<Wave> waves_;
  std::vector<Lane> lanes_;
  std::vector<std::unique_ptr<u8[]>> shared_;
  // workgroups that may have a ready lane
  std::vector<Workgroup*> queue_;
  std::unordered_map<const u32*, std::vector<Lane*>> waiters_;
  std::string deadlock_;
  // lines read in each phase, by the phase's counters
  std::unordered_map<PhaseCounters*, std::unordered_set<u64>> lines_;
};

// that of the run in progress
extern Scheduler* scheduler;

}  // namespace mono::host

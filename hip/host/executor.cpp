#include "host/executor.h"

#include <time.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "host/run.h"
#include "host/scheduler.h"
#include "host/stack.h"

namespace mono::host {

Fiber* current;
PhaseCounters* counters;
bool counts_lines;

namespace {

std::vector<Kernel>& registered_kernels() {
  static std::vector<Kernel> kernels;
  return kernels;
}

int invalid(const MonoHostOptions& options, const std::string& message) {
  std::snprintf(options.message, options.message_bytes, "%s", message.c_str());
  return kMonoHostInvalid;
}

}  // namespace

KernelRegistration::KernelRegistration(const Kernel& kernel) { registered_kernels().push_back(kernel); }

void wave_collective(void* frame, Combine combine, const char* operation, Site site) {
  scheduler->wave_collective(frame, combine, operation, site);
}
void workgroup_barrier(Site site) { scheduler->workgroup_barrier(site); }
void count_line(u64 line) { scheduler->count_line(line); }
void written(const u32* word) { scheduler->written(word); }
bool wait_until_reached(const u32* word, u32 epoch, u64 deadline_ticks) {
  return scheduler->wait_until_reached(word, epoch, deadline_ticks);
}
void enter_phase(u32 phase) { scheduler->enter_phase(phase); }
void stop_launch() { scheduler->stop_launch(); }

u64 clock_ticks() {
  constexpr u64 kNanosecondsPerTick = 1'000'000'000 / kClockTicksPerSecond;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<u64>(now.tv_sec) * kClockTicksPerSecond + static_cast<u64>(now.tv_nsec) / kNanosecondsPerTick;
}

}  // namespace mono::host

int mono_host_run(const MonoHostLaunch* launches, mono::u32 count, const MonoHostOptions* options) {
  using namespace mono;
  using namespace mono::host;
  std::vector<const Kernel*> kernels;
  u64 threads = 0;
  for (u32 i = 0; i < count; ++i) {
    const MonoHostLaunch& launch = launches[i];
    const Kernel* found = nullptr;
    for (const Kernel& kernel : registered_kernels()) {
      if (std::strcmp(kernel.name, launch.kernel) == 0) found = &kernel;
    }
    if (found == nullptr) return invalid(*options, std::string("There is no kernel ") + launch.kernel + ".");
    if (found->args_bytes != launch.args_bytes) {
      return invalid(*options, std::string("Kernel ") + launch.kernel + " takes " + std::to_string(found->args_bytes) +
                                   " bytes of arguments, not " + std::to_string(launch.args_bytes) + ".");
    }
    if (launch.workgroups == 0)
      return invalid(*options, std::string("A launch of ") + launch.kernel + " has no workgroup.");
    kernels.push_back(found);
    threads += static_cast<u64>(launch.workgroups) * kWorkgroupThreads;
  }
  u8* const stacks = reserve_stacks(threads);
  if (stacks == nullptr)
    return invalid(*options, "There is no memory for the stacks of " + std::to_string(threads) + " threads.");
  Scheduler run(launches, kernels, *options, stacks);
  scheduler = &run;
  counts_lines = options->counts_lines != 0;
  return run.run();
}

#include "host/scheduler.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "host/stack.h"

namespace mono::host {

Scheduler* scheduler;

namespace {

// NaN in every format that LDS holds
constexpr int kLdsPoison = 0xff;
constexpr u64 kStackGuard = 0x5afe57ac6a9d1234;
constexpr u64 kSharedAlignment = 16;

bool reached(const u32* word, u32 epoch) { return epoch_reached(__atomic_load_n(word, __ATOMIC_ACQUIRE), epoch); }

Lane& running() { return *static_cast<Lane*>(current); }

// Where a lane stands, for people.
std::string describe(const Lane& lane) {
  const Workgroup& workgroup = *lane.wave->workgroup;
  char text[512];
  const int prefix = std::snprintf(text, sizeof text, "launch %u, workgroup %u, thread %u ", workgroup.launch_index,
                                   workgroup.index, lane.thread);
  if (lane.state == State::kDone) {
    std::snprintf(text + prefix, sizeof text - prefix, "has returned");
  } else if (lane.state == State::kWaiting) {
    std::snprintf(text + prefix, sizeof text - prefix, "waits for a flag to reach %u (it is %u)", lane.epoch,
                  __atomic_load_n(lane.word, __ATOMIC_RELAXED));
  } else {
    std::snprintf(text + prefix, sizeof text - prefix, "is at a %s (%s:%u)", lane.operation, lane.site.file,
                  lane.site.line);
  }
  return text;
}

}  // namespace

Scheduler::Scheduler(const MonoHostLaunch* launches, const std::vector<const Kernel*>& kernels,
                     const MonoHostOptions& options, u8* stacks)
    : options_(options), random_(options.seed) {
  for (u32 i = 0; i < kernels.size(); ++i) unfinished_workgroups_ += launches[i].workgroups;
  workgroups_.resize(unfinished_workgroups_);
  waves_.resize(unfinished_workgroups_ * kWorkgroupWaves);
  lanes_.resize(unfinished_workgroups_ * kWorkgroupThreads);
  u64 position = 0;
  for (u32 i = 0; i < kernels.size(); ++i) {
    for (u32 w = 0; w < launches[i].workgroups; ++w) add_workgroup(launches[i], *kernels[i], i, w, position++, stacks);
  }
}

void Scheduler::add_workgroup(const MonoHostLaunch& launch, const Kernel& kernel, u32 launch_index, u32 index,
                              u64 position, u8* stacks) {
  Workgroup& workgroup = workgroups_[position];
  shared_.push_back(std::make_unique<u8[]>(kernel.shared_bytes + kSharedAlignment));
  const u64 unaligned = reinterpret_cast<u64>(shared_.back().get());
  workgroup = {
      .kernel = &kernel,
      .launch = &launch,
      .launch_index = launch_index,
      .index = index,
      .waves = &waves_[position * kWorkgroupWaves],
      .lanes = &lanes_[position * kWorkgroupThreads],
      .shared = reinterpret_cast<u8*>((unaligned + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment),
      .counters = launch.counters,
      .ready_waves = kWorkgroupWaves};
  for (u32 t = 0; t < kWorkgroupThreads; ++t) {
    Lane& lane = workgroup.lanes[t];
    lane.thread = t;
    lane.workgroup = index;
    lane.wave = &workgroup.waves[t / kWaveLanes];
    lane.stack = stacks + (position * kWorkgroupThreads + t) * kStackBytes;
    std::memcpy(lane.stack, &kStackGuard, sizeof kStackGuard);
    lane.stack_pointer = prepare_stack(lane.stack + kStackBytes, [] { scheduler->run_lane(); });
    lane.state = State::kReady;
  }
  for (u32 w = 0; w < kWorkgroupWaves; ++w) {
    workgroup.waves[w].workgroup = &workgroup;
    workgroup.waves[w].lanes = workgroup.lanes + w * kWaveLanes;
    workgroup.waves[w].ready_lanes = kWaveLanes;
  }
}

int Scheduler::run() {
  for (Workgroup& workgroup : workgroups_) enqueue(workgroup);
  while (status_ == kMonoHostOk && unfinished_workgroups_ > 0) {
    if (queue_.empty()) {
      options_.has_peers ? wait_for_peers() : report_deadlock();
      continue;
    }
    const u64 chosen = choose(queue_.size());
    Workgroup& workgroup = *queue_[chosen];
    queue_.erase(queue_.begin() + static_cast<i64>(chosen));
    workgroup.queued = false;
    run_workgroup(workgroup);
  }
  return status_;
}

void Scheduler::run_workgroup(Workgroup& workgroup) {
  counters = workgroup.counters;
  while (workgroup.ready_waves > 0) {
    Lane* lane = choose_wave(workgroup).lanes;
    while (lane->state != State::kReady) ++lane;
    current = lane;
    mono_switch_stack(&scheduler_stack_, lane->stack_pointer);
    if (status_ != kMonoHostOk) return;
  }
  if (workgroup.done == kWorkgroupThreads) {
    --unfinished_workgroups_;
  } else {
    check_blocked(workgroup);
  }
}

Wave& Scheduler::choose_wave(Workgroup& workgroup) {
  u32 wave = (workgroup.last_wave + 1 + static_cast<u32>(choose(kWorkgroupWaves))) % kWorkgroupWaves;
  while (workgroup.waves[wave].ready_lanes == 0) wave = (wave + 1) % kWorkgroupWaves;
  workgroup.last_wave = wave;
  return workgroup.waves[wave];
}

// A blocked workgroup is in order while one of its lanes waits for a flag; otherwise its lanes wait for each other.
void Scheduler::check_blocked(const Workgroup& workgroup) {
  const Lane* const begin = workgroup.lanes;
  const Lane* const end = begin + kWorkgroupThreads;
  if (std::any_of(begin, end, [](const Lane& lane) { return lane.state == State::kWaiting; })) return;
  const Lane* const one = std::find_if(begin, end, [](const Lane& lane) { return lane.state != State::kDone; });
  const Lane* const other = std::find_if(begin, end, [&](const Lane& lane) {
    return lane.state != one->state || (lane.state != State::kDone && !(lane.site == one->site));
  });
  fail(kMonoHostDivergence,
       "Threads of one workgroup wait for each other: " + describe(*one) + ", but " + describe(*other) + ".");
}

// Hands control to another fiber; returns when somebody has made this lane ready and its turn has come.
void Scheduler::suspend(State state) {
  Lane& self = running();
  self.state = state;
  if (--self.wave->ready_lanes == 0) --self.wave->workgroup->ready_waves;
  // the next lane mostly comes to the same operation: go there without the detour through the scheduler
  Lane* const next = &self + 1;
  if (next != self.wave->lanes + kWaveLanes && next->state == State::kReady) {
    current = next;
    mono_switch_stack(&self.stack_pointer, next->stack_pointer);
  } else {
    mono_switch_stack(&self.stack_pointer, scheduler_stack_);
  }
}

void Scheduler::wave_collective(void* frame, Combine combine, const char* operation, Site site) {
  Lane& self = running();
  Wave& wave = *self.wave;
  self.site = site;
  self.operation = operation;
  wave.frames[&self - wave.lanes] = frame;
  if (++wave.arrived < kWaveLanes) {
    suspend(State::kInWaveOperation);
    return;
  }
  for (Lane* lane = wave.lanes; lane != wave.lanes + kWaveLanes; ++lane) {
    if (!(lane->site == site) || lane->operation != operation) {
      self.state = State::kInWaveOperation;
      fail_running(kMonoHostDivergence,
                   "Lanes of one wave diverge: " + describe(*lane) + ", but " + describe(self) + ".");
    }
    lane->state = State::kReady;
  }
  wave.arrived = 0;
  wave.ready_lanes = kWaveLanes;
  combine(wave.frames);
  if (&self == wave.lanes) return;
  current = wave.lanes;
  mono_switch_stack(&self.stack_pointer, wave.lanes->stack_pointer);
}

void Scheduler::workgroup_barrier(Site site) {
  Lane& self = running();
  Workgroup& workgroup = *self.wave->workgroup;
  self.site = site;
  self.operation = "workgroup barrier";
  if (++workgroup.arrived < kWorkgroupThreads) {
    suspend(State::kAtBarrier);
    return;
  }
  for (Lane* lane = workgroup.lanes; lane != workgroup.lanes + kWorkgroupThreads; ++lane) {
    if (!(lane->site == site)) {
      self.state = State::kAtBarrier;
      fail_running(kMonoHostDivergence,
                   "Threads of one workgroup diverge: " + describe(*lane) + ", but " + describe(self) + ".");
    }
    lane->state = State::kReady;
  }
  workgroup.arrived = 0;
  workgroup.ready_waves = kWorkgroupWaves;
  for (u32 w = 0; w < kWorkgroupWaves; ++w) workgroup.waves[w].ready_lanes = kWaveLanes;
  // which wave goes first is the scheduler's choice
  mono_switch_stack(&self.stack_pointer, scheduler_stack_);
}

bool Scheduler::wait_until_reached(const u32* word, u32 epoch, u64 deadline_ticks) {
  if (reached(word, epoch)) return true;
  Lane& self = running();
  self.word = word;
  self.epoch = epoch;
  self.deadline = clock_ticks() + deadline_ticks;
  self.timed_out = false;
  waiters_[word].push_back(&self);
  suspend(State::kWaiting);
  return !self.timed_out;
}

void Scheduler::count_line(u64 line) { counters->cached_lines_read += lines_[counters].insert(line).second; }

void Scheduler::written(const u32* word) {
  if (!waiters_.empty()) wake_reached(word);
}

void Scheduler::wake_reached(const u32* word) {
  const auto entry = waiters_.find(word);
  if (entry == waiters_.end()) return;
  std::erase_if(entry->second, [&](Lane* lane) {
    if (!reached(word, lane->epoch)) return false;
    make_ready(*lane);
    return true;
  });
  if (entry->second.empty()) waiters_.erase(entry);
}

void Scheduler::make_ready(Lane& lane) {
  lane.state = State::kReady;
  if (lane.wave->ready_lanes++ == 0) ++lane.wave->workgroup->ready_waves;
  enqueue(*lane.wave->workgroup);
}

void Scheduler::enqueue(Workgroup& workgroup) {
  if (workgroup.queued) return;
  workgroup.queued = true;
  queue_.push_back(&workgroup);
}

void Scheduler::enter_phase(u32 phase) {
  Workgroup& workgroup = *running().wave->workgroup;
  if (phase >= workgroup.launch->phases) {
    fail_running(kMonoHostInvalid, "A program entry names phase " + std::to_string(phase) + ", the kernel has " +
                                       std::to_string(workgroup.launch->phases) + ".");
  }
  counters = workgroup.counters = workgroup.launch->counters + phase;
  if (workgroup.entered++ % kWorkgroupThreads == 0)
    std::memset(workgroup.shared, kLdsPoison, workgroup.kernel->shared_bytes);
}

// Other processes may write a flag at any time: look, let them run, look again.
void Scheduler::wait_for_peers() {
  std::vector<const u32*> words;
  for (const auto& [word, lanes] : waiters_) words.push_back(word);
  const u64 now = clock_ticks();
  for (const u32* word : words) {
    wake_reached(word);
    const auto entry = waiters_.find(word);
    if (entry == waiters_.end()) continue;
    const auto late = std::find_if(entry->second.begin(), entry->second.end(),
                                   [&](const Lane* lane) { return lane->deadline < now; });
    if (late == entry->second.end()) continue;
    deadlock_ = "A wait passed its deadline: " + describe(**late) + ".";
    (*late)->timed_out = true;
    make_ready(**late);
    entry->second.erase(late);
    return;
  }
  if (queue_.empty()) sched_yield();
}

// Lets the first waiter time out, so that the same fault record is written as on the device.
void Scheduler::report_deadlock() {
  std::map<std::pair<u32, u32>, Lane*> by_workgroup;
  for (const auto& [word, lanes] : waiters_) {
    for (Lane* lane : lanes) by_workgroup[{lane->wave->workgroup->launch_index, lane->wave->workgroup->index}] = lane;
  }
  deadlock_ = "Nobody can continue:";
  for (const auto& [workgroup, lane] : by_workgroup) deadlock_ += "\n  " + describe(*lane);
  Lane& first = *by_workgroup.begin()->second;
  first.timed_out = true;
  std::erase(waiters_[first.word], &first);
  make_ready(first);
}

void Scheduler::stop_launch() {
  if (!deadlock_.empty()) fail_running(kMonoHostDeadlock, deadlock_);
  fail_running(kMonoHostFault, "The launch recorded a fault and stopped.");
}

void Scheduler::run_lane() {
  Lane& self = running();
  Workgroup& workgroup = *self.wave->workgroup;
  workgroup.kernel->function(workgroup.launch->args, workgroup.shared);
  if (std::memcmp(self.stack, &kStackGuard, sizeof kStackGuard) != 0) {
    fail_running(kMonoHostInvalid, "A thread of kernel " + std::string(workgroup.kernel->name) + " used more than " +
                                       std::to_string(kStackBytes) + " bytes of stack.");
  }
  ++workgroup.done;
  suspend(State::kDone);
  __builtin_unreachable();
}

void Scheduler::fail_running(int status, const std::string& message) {
  fail(status, message);
  mono_switch_stack(&current->stack_pointer, scheduler_stack_);
  __builtin_unreachable();
}

void Scheduler::fail(int status, const std::string& message) {
  status_ = status;
  std::snprintf(options_.message, options_.message_bytes, "%s", message.c_str());
}

// A number below `bound`; the seed decides all of them (splitmix64).
u64 Scheduler::choose(u64 bound) {
  if (options_.seed == 0) return 0;
  random_ += 0x9e3779b97f4a7c15;
  u64 mixed = random_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return (mixed ^ (mixed >> 31)) % bound;
}

}  // namespace mono::host

// Runs kernels on the CPU: a GPU thread is a fiber, and one seeded scheduler on one OS thread runs all workgroups of
// all launches.
//
// A fiber gives up control only where the kernel waits: at a wave operation, a workgroup barrier or a wait on a flag.
// Blocked fibers are never polled: the arrival or the store that they wait for makes them ready again. So every
// interleaving can be replayed from its seed, and a launch that nobody can continue is reported as a deadlock, with who
// waits for what.
//
// This header is the executor as a kernel sees it, through include/mono; run.h is the executor as the device (Python)
// sees it.
#pragma once

#include "mono/base.h"
#include "mono/site.h"

namespace mono::host {

// kStreamed: weights and states, which a step reads once; kCached: what workgroups share or read again
enum class Access : u32 { kCached, kStreamed };

// What the workgroups of one launch did while they ran one phase.
struct PhaseCounters {
  u64 streamed_bytes_read;
  // what lanes asked for, most of which one load of the wave or a cache serves
  u64 cached_bytes_read;
  // cache lines that those reads touch, each counted once a launch; counted on request
  u64 cached_lines_read;
  u64 bytes_written;
  u64 grid_barriers;
};

struct Fiber {
  void* stack_pointer;
  u32 thread;
  u32 workgroup;
};

// the running fiber, and where its accesses count
extern Fiber* current;
extern PhaseCounters* counters;

inline u32 current_thread() { return current->thread; }
inline u32 current_workgroup() { return current->workgroup; }

// whether cached_lines_read is counted
extern bool counts_lines;
void count_line(u64 line);

inline void count_read(const void* address, u64 bytes, Access access) {
  if (access == Access::kStreamed) {
    counters->streamed_bytes_read += bytes;
    return;
  }
  counters->cached_bytes_read += bytes;
  // no access crosses a line: it is aligned to its size
  if (counts_lines) count_line(reinterpret_cast<u64>(address) / kCacheLineBytes);
}

inline void count_write(u64 bytes) { counters->bytes_written += bytes; }
inline void count_grid_barrier() { ++counters->grid_barriers; }

// Waits until all 64 lanes of the wave have come to the same operation at the same site; the last one calls `combine`
// with the frames of all lanes. Lanes that come to different operations fail the launch.
using Combine = void (*)(void* const* frames);
void wave_collective(void* frame, Combine combine, const char* operation, Site site);

// Waits until all threads of the workgroup have come to the same site.
void workgroup_barrier(Site site);

// Called by every atomic store: makes the fibers ready that wait for this word.
void written(const u32* word);

// Blocks until *word has reached `epoch` (modulo 2^32). False when that cannot happen any more: nobody in this process
// can run and, where other processes take part, the deadline has passed.
bool wait_until_reached(const u32* word, u32 epoch, u64 deadline_ticks);

u64 clock_ticks();

// Counts from now on for `phase`, and fills the workgroup's LDS with NaNs: a phase must not read what another one left
// there.
void enter_phase(u32 phase);

// Ends the launch with the fault that was just recorded.
[[noreturn]] void stop_launch();

using KernelFunction = void (*)(const void* args, void* shared);

struct Kernel {
  const char* name;
  KernelFunction function;
  u64 args_bytes;
  u64 shared_bytes;
};

// Makes a kernel known by its name; one static object a kernel.
struct KernelRegistration {
  explicit KernelRegistration(const Kernel& kernel);
};

}  // namespace mono::host

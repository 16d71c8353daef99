// A step as a program: a table of (phase, layer) in device memory, of which one launch runs a contiguous slice.
//
// A phase is a struct with
//   kName                              what Python calls it
//   Args                               plain data: pointers, strides, sizes; listed with MONO_FIELDS
//   Shared                             its LDS, a plain struct
//   run(const Args&, Shared&, const Grid&)   correct for any grid size
#pragma once

#include "mono/grid.h"

namespace mono {

struct ProgramEntry {
  u32 phase;
  u32 layer;
  // 1: a grid barrier follows inside a launch; 0: the next entry reads nothing that another workgroup writes in this
  // one
  u32 sync;
  // zero; keeps the pointer aligned
  u32 reserved;
  Global<const u8> args;

  MONO_FIELDS(ProgramEntry, phase, layer, sync, reserved, args)
};

struct LaunchArgs {
  // [entries], constant during the launch
  Global<const ProgramEntry> program;
  Global<GridState> grid;
  // constant during the launch
  Global<const FaultContext> faults;
  u32 begin;
  u32 end;
  u32 workgroups;
  u32 reserved;

  MONO_FIELDS(LaunchArgs, program, grid, faults, begin, end, workgroups, reserved)
};

namespace detail {

template <class First, class... Rest>
union SharedUnion {
  typename First::Shared first;
  SharedUnion<Rest...> rest;
};
template <class Last>
union SharedUnion<Last> {
  typename Last::Shared first;
};

}  // namespace detail

template <class... Phases>
struct Program {
  using Shared = detail::SharedUnion<Phases...>;

  static constexpr u32 kLayoutRows = (Phases::Args::kFields + ...) + ProgramEntry::kFields + LaunchArgs::kFields +
                                     GridState::kFields + FaultContext::kFields + FaultRecord::kFields;

  static constexpr LayoutTable<kLayoutRows> layout() {
    LayoutTable<kLayoutRows> table{};
    u32 row = 0;
    u32 phase = 0;
    ((row += describe<typename Phases::Args>(table.rows + row, Phases::kName, phase++)), ...);
    row += describe<ProgramEntry>(table.rows + row, "ProgramEntry", kNotAPhase);
    row += describe<LaunchArgs>(table.rows + row, "LaunchArgs", kNotAPhase);
    row += describe<GridState>(table.rows + row, "GridState", kNotAPhase);
    row += describe<FaultContext>(table.rows + row, "FaultContext", kNotAPhase);
    row += describe<FaultRecord>(table.rows + row, "FaultRecord", kNotAPhase);
    return table;
  }

  MONO_FN static void run(const LaunchArgs& launch, Shared& shared) {
    Grid grid(launch.workgroups, launch.grid, launch.faults);
    for (u32 i = launch.begin; i < launch.end; ++i) {
      const auto entry = load_constant(launch.program.address + i);
      grid.enter({entry.phase, entry.layer});
      dispatch<0, Phases...>(entry, shared, grid);
      if (i + 1 == launch.end) break;
      if (entry.sync != 0) {
        grid.sync();
      } else {
        // the next phase takes over the LDS
        workgroup_barrier();
      }
    }
  }

 private:
  template <u32 kPhase, class Phase, class... Rest, class Slot>
  MONO_FN static void dispatch(const ProgramEntry& entry, Slot& shared, const Grid& grid) {
    if (entry.phase == kPhase) {
      const auto args = load_constant(reinterpret_cast<const typename Phase::Args*>(entry.args.address));
      Phase::run(args, shared.first, grid);
    } else if constexpr (sizeof...(Rest) > 0) {
      dispatch<kPhase + 1, Rest...>(entry, shared.rest, grid);
    }
  }
};

}  // namespace mono

// Defines the kernel `name` that runs slices of ProgramType, and the symbol `mono_layout` that describes its structs.
#if defined(__AMDGCN__)
#define MONO_PROGRAM_KERNEL(name, ProgramType)                                                                         \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(::mono::kWorkgroupThreads, ::mono::kWorkgroupThreads), \
                            amdgpu_waves_per_eu(1))) void                                                              \
  name(::mono::LaunchArgs launch) {                                                                                    \
    static __attribute__((shared)) ProgramType::Shared shared;                                                         \
    ProgramType::run(launch, shared);                                                                                  \
  }                                                                                                                    \
  extern "C" {                                                                                                         \
  __attribute__((device, used, visibility("protected"))) extern constexpr auto mono_layout = ProgramType::layout();    \
  }
#else
#define MONO_PROGRAM_KERNEL(name, ProgramType)                                                                     \
  static void name(const void* launch, void* shared) {                                                             \
    ProgramType::run(*static_cast<const ::mono::LaunchArgs*>(launch), *static_cast<ProgramType::Shared*>(shared)); \
  }                                                                                                                \
  static const ::mono::host::KernelRegistration name##_registration(                                               \
      {#name, name, sizeof(::mono::LaunchArgs), sizeof(ProgramType::Shared)});                                     \
  extern "C" {                                                                                                     \
  __attribute__((used)) extern constexpr auto mono_layout = ProgramType::layout();                                 \
  }
#endif

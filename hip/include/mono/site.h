// Where in the kernel source a collective operation stands; the host executor names it when lanes diverge.
#pragma once

#include "mono/base.h"

namespace mono {

#if defined(__AMDGCN__)

struct Site {
  MONO_FN static Site here() { return {}; }
};

#else

struct Site {
  const char* file;
  u32 line;

  static constexpr Site here(const char* file = __builtin_FILE(), u32 line = __builtin_LINE()) { return {file, line}; }
  bool operator==(const Site&) const = default;
};

#endif

}  // namespace mono

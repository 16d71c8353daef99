// What a HIP runtime reads of an AMDGPU code object. Layouts: LLVM AMDGPUUsage, "ELF Code Object" and "Kernel
// Descriptor".
#pragma once

#include "mono/base.h"

namespace fake_hip {

using namespace mono;

// The data symbol `<kernel>.kd`, from which the hardware starts a kernel.
struct KernelDescriptor {
  u32 group_segment_bytes;
  u32 private_segment_bytes;
  u32 kernarg_bytes;
  u8 rest[52];
};
static_assert(sizeof(KernelDescriptor) == 64);

struct CodeObject {
  const char* bytes;
  u64 size;
};

// Copies `size` bytes at `image`: fewer where readable memory ends earlier.
CodeObject copy_code_object(const void* image, u64 size);
void free_code_object(const CodeObject& object);

bool is_elf(const CodeObject& object);
bool is_for_gfx950(const CodeObject& object);
// nullptr when the code object has no such kernel
const KernelDescriptor* find_kernel(const CodeObject& object, const char* name);

}  // namespace fake_hip

#include "host/stack.h"

#include <sys/mman.h>

asm(R"(
.text
.p2align 4
.globl mono_switch_stack
.hidden mono_switch_stack
.type mono_switch_stack, @function
mono_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size mono_switch_stack, .-mono_switch_stack
)");

namespace mono::host {

namespace {

constexpr u32 kSavedRegisters = 6;

}  // namespace

u8* reserve_stacks(u64 count) {
  static u8* base = nullptr;
  static u64 reserved = 0;
  // one more below the first: an overflow of that one is found like those of the others, not by a fault
  const u64 bytes = (count + 1) * kStackBytes;
  if (bytes <= reserved) return base + kStackBytes;
  if (base != nullptr) munmap(base, reserved);
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  base = mapped == MAP_FAILED ? nullptr : static_cast<u8*>(mapped);
  reserved = base == nullptr ? 0 : bytes;
  return base == nullptr ? nullptr : base + kStackBytes;
}

void* prepare_stack(u8* top, void (*entry)()) {
  void** pointer = reinterpret_cast<void**>(top);
  // a return address that is never used keeps the alignment that a called function expects
  *--pointer = nullptr;
  *--pointer = reinterpret_cast<void*>(entry);
  for (u32 i = 0; i < kSavedRegisters; ++i) *--pointer = nullptr;
  return pointer;
}

}  // namespace mono::host

#include "code_object.h"

#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace fake_hip {

namespace {

// AMDGPUUsage, "ELF Header": the operating system's ABI, and the target in e_flags
constexpr u8 kHsaAbi = 64;
constexpr u32 kTargetMask = 0xff;
constexpr u32 kGfx950 = 0x4f;

constexpr char kDescriptorSuffix[] = ".kd";

template <class T>
const T* at(const CodeObject& object, u64 offset) {
  return reinterpret_cast<const T*>(object.bytes + offset);
}

const void* at_address(const CodeObject& object, u64 address) {
  const auto* const header = at<Elf64_Ehdr>(object, 0);
  const auto* const segments = at<Elf64_Phdr>(object, header->e_phoff);
  for (u32 i = 0; i < header->e_phnum; ++i) {
    const u64 offset = address - segments[i].p_vaddr;
    if (segments[i].p_type == PT_LOAD && offset < segments[i].p_filesz)
      return at<void*>(object, segments[i].p_offset + offset);
  }
  return nullptr;
}

bool is_descriptor_of(const char* symbol, const char* kernel) {
  const u64 length = strlen(kernel);
  return strncmp(symbol, kernel, length) == 0 && strcmp(symbol + length, kDescriptorSuffix) == 0;
}

}  // namespace

CodeObject copy_code_object(const void* image, u64 size) {
  // through a file: where readable memory ends, write() stops, and a plain copy would crash
  const int file = memfd_create("code object", 0);
  const ssize_t written = write(file, image, size);
  void* const copy = written > 0 ? mmap(nullptr, written, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  close(file);
  if (copy == MAP_FAILED) return {nullptr, 0};
  return {static_cast<const char*>(copy), static_cast<u64>(written)};
}

void free_code_object(const CodeObject& object) { munmap(const_cast<char*>(object.bytes), object.size); }

bool is_elf(const CodeObject& object) {
  return object.size >= sizeof(Elf64_Ehdr) && memcmp(object.bytes, ELFMAG, SELFMAG) == 0 &&
         object.bytes[EI_CLASS] == ELFCLASS64;
}

bool is_for_gfx950(const CodeObject& object) {
  const auto* const header = at<Elf64_Ehdr>(object, 0);
  return header->e_ident[EI_OSABI] == kHsaAbi && header->e_machine == EM_AMDGPU &&
         (header->e_flags & kTargetMask) == kGfx950;
}

const KernelDescriptor* find_kernel(const CodeObject& object, const char* name) {
  const auto* const header = at<Elf64_Ehdr>(object, 0);
  const auto* const sections = at<Elf64_Shdr>(object, header->e_shoff);
  for (u32 i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const char* const names = at<char>(object, sections[sections[i].sh_link].sh_offset);
    const auto* const symbols = at<Elf64_Sym>(object, sections[i].sh_offset);
    for (u64 k = 0; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k) {
      if (is_descriptor_of(names + symbols[k].st_name, name) && symbols[k].st_size == sizeof(KernelDescriptor))
        return static_cast<const KernelDescriptor*>(at_address(object, symbols[k].st_value));
    }
  }
  return nullptr;
}

}  // namespace fake_hip

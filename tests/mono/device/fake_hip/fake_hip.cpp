#include "fake_hip.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "code_object.h"
#include "host/run.h"

using namespace fake_hip;

namespace {

// hipError_t of hip_runtime_api.h
enum HipError : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kInvalidHandle = 400,
  kNotFound = 500,
  kLaunchFailure = 719,
};

// keys of the `extra` list of a launch, hip_runtime_api.h
enum LaunchParameter : u64 { kBufferPointer = 1, kBufferSize = 2, kEnd = 3 };

// HIP 7.0
constexpr int kVersion = 7'00'00000;
constexpr u32 kHandles = 16;
constexpr u32 kNameBytes = 64;
constexpr u32 kPhases = 64;
constexpr u32 kTextBytes = 1 << 16;

struct Function {
  char name[kNameBytes];
  u32 kernarg_bytes;
};

struct Failure {
  char function[kNameBytes];
  int error;
};

struct Runtime {
  FakeHipScript script;
  CodeObject modules[kHandles];
  u32 module_count;
  Function functions[kHandles];
  u32 function_count;
  Failure injected[kHandles];
  u32 injected_count;
  // of a launch that failed while it ran: like a GPU, the runtime returns it from the next call on
  int failure;
  u64 launches;
  char complaints[kTextBytes];
};

Runtime runtime;

[[gnu::format(printf, 1, 2)]] void complain(const char* format, ...) {
  const u64 used = strlen(runtime.complaints);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(runtime.complaints + used, kTextBytes - used, format, arguments);
  va_end(arguments);
}

// What `function` returns without doing anything, or kSuccess.
int refusal(const char* function) {
  for (u32 i = 0; i < runtime.injected_count; ++i) {
    if (strcmp(runtime.injected[i].function, function) == 0) return runtime.injected[i].error;
  }
  return runtime.failure;
}

// The element that a handle stands for, nullptr when it is none.
template <class T>
const T* element(const T (&elements)[kHandles], u32 count, const void* handle) {
  for (u32 i = 0; i < count; ++i) {
    if (&elements[i] == handle) return &elements[i];
  }
  return nullptr;
}

bool matches(const char* what, u64 actual, u64 expected) {
  if (actual != expected) complain("%s is %lu, expected %lu\n", what, actual, expected);
  return actual == expected;
}

bool matches(const char* what, const u32 (&actual)[3], const u32 (&expected)[3]) {
  const bool equal = memcmp(actual, expected, sizeof(actual)) == 0;
  if (!equal) {
    complain("%s is %u x %u x %u, expected %u x %u x %u\n", what, actual[0], actual[1], actual[2], expected[0],
             expected[1], expected[2]);
  }
  return equal;
}

struct Arguments {
  const void* bytes;
  u64 size;
};

// Reads the `extra` list of a launch: keys, each with a value, up to kEnd.
Arguments read_extra(void* const* extra) {
  Arguments read{};
  for (; extra[0] != reinterpret_cast<void*>(kEnd); extra += 2) {
    if (extra[0] == reinterpret_cast<void*>(kBufferPointer)) read.bytes = extra[1];
    if (extra[0] == reinterpret_cast<void*>(kBufferSize)) read.size = *static_cast<const u64*>(extra[1]);
  }
  return read;
}

int run_on_host(const Function& function, const Arguments& arguments, u32 workgroups) {
  static host::PhaseCounters counters[kPhases];
  static char message[kTextBytes];
  void* const library = dlopen(runtime.script.library, RTLD_NOW | RTLD_LOCAL);
  void* const run = library == nullptr ? nullptr : dlsym(library, "mono_host_run");
  if (run == nullptr) {
    complain("%s\n", dlerror());
    return kLaunchFailure;
  }
  const MonoHostLaunch launch{
      .kernel = function.name,
      .args = arguments.bytes,
      .args_bytes = arguments.size,
      .workgroups = workgroups,
      .phases = kPhases,
      .counters = counters,
  };
  MonoHostOptions options{};
  options.message_bytes = kTextBytes;
  options.message = message;
  if (reinterpret_cast<decltype(&mono_host_run)>(run)(&launch, 1, &options) == kMonoHostOk) return kSuccess;
  complain("The launch failed: %s\n", message);
  return kLaunchFailure;
}

}  // namespace

extern "C" {

void fake_hip_begin(const FakeHipScript* script) {
  for (u32 i = 0; i < runtime.module_count; ++i) free_code_object(runtime.modules[i]);
  memset(&runtime, 0, sizeof(runtime));
  runtime.script = *script;
}

void fake_hip_fail(const char* function, int error) {
  Failure& failure = runtime.injected[runtime.injected_count++];
  snprintf(failure.function, sizeof(failure.function), "%s", function);
  failure.error = error;
}

const char* fake_hip_complaints() { return runtime.complaints; }
u64 fake_hip_launches() { return runtime.launches; }

int hipRuntimeGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}

int hipModuleLoadData(void** module, const void* image) {
  if (const int error = refusal(__func__)) return error;
  if (runtime.module_count == kHandles) return kOutOfMemory;
  const FakeHipScript& script = runtime.script;
  const CodeObject object = copy_code_object(image, script.module_bytes);
  if (!is_elf(object)) return kInvalidImage;
  if (!is_for_gfx950(object)) return kNoBinaryForGpu;
  if (object.size < script.module_bytes || memcmp(object.bytes, script.module, object.size) != 0) {
    complain("The module is not the code object that was built\n");
    return kInvalidImage;
  }
  CodeObject& loaded = runtime.modules[runtime.module_count++];
  loaded = object;
  *module = &loaded;
  return kSuccess;
}

int hipModuleGetFunction(void** function, void* module, const char* name) {
  if (const int error = refusal(__func__)) return error;
  if (runtime.function_count == kHandles) return kOutOfMemory;
  const CodeObject* const object = element(runtime.modules, runtime.module_count, module);
  if (object == nullptr) return kInvalidHandle;
  const KernelDescriptor* const descriptor = find_kernel(*object, name);
  if (descriptor == nullptr) return kNotFound;
  Function& found = runtime.functions[runtime.function_count++];
  snprintf(found.name, sizeof(found.name), "%s", name);
  found.kernarg_bytes = descriptor->kernarg_bytes;
  *function = &found;
  return kSuccess;
}

int hipModuleLaunchKernel(void* handle, u32 grid_x, u32 grid_y, u32 grid_z, u32 block_x, u32 block_y, u32 block_z,
                          u32 lds_bytes, void* stream, void** parameters, void** extra) {
  if (const int error = refusal(__func__)) return error;
  const Function* const function = element(runtime.functions, runtime.function_count, handle);
  if (function == nullptr) return kInvalidHandle;
  const FakeHipScript& script = runtime.script;
  if (!matches("The grid", {grid_x, grid_y, grid_z}, script.grid)) return kInvalidConfiguration;
  if (!matches("The workgroup", {block_x, block_y, block_z}, script.block)) return kInvalidConfiguration;
  if (!matches("The dynamic LDS", lds_bytes, script.lds_bytes)) return kInvalidConfiguration;
  if (!matches("The stream", reinterpret_cast<u64>(stream), script.stream)) return kInvalidHandle;
  if (parameters != nullptr || extra == nullptr) {
    complain("The arguments are not in `extra`\n");
    return kInvalidValue;
  }
  const Arguments arguments = read_extra(extra);
  if (!matches("The size of the arguments", arguments.size, function->kernarg_bytes)) return kInvalidValue;
  runtime.failure = run_on_host(*function, arguments, grid_x);
  if (runtime.failure == kSuccess) ++runtime.launches;
  return kSuccess;
}
}

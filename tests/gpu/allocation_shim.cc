// Counts a process's calls that allocate memory from the CUDA driver, host memory included. It is
// preloaded (LD_PRELOAD), because the CUDA runtime is linked statically into the program and once
// more into cuBLASLt, where the linker cannot wrap it.
//
// Every runtime finds the driver's functions by dlsym, or by cuGetProcAddress, which it finds by
// dlsym. So the shim has a dlsym that returns counting stand-ins for the functions below, and a
// cuGetProcAddress that does the same.
#include "tests/gpu/allocation_shim.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

namespace {

// Names without the suffixes of versions. The capture of a graph also takes memory.
constexpr std::array kAllocating = {
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemAllocManaged",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocHost",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemCreate",
    "cuMemAddressReserve",
    "cuMemPoolCreate",
    "cuArrayCreate",
    "cuArray3DCreate",
    "cuMipmappedArrayCreate",
    "cuGraphInstantiate",
    "cuGraphInstantiateWithFlags",
    "cuGraphInstantiateWithParams",
};
constexpr char kFinder[] = "cuGetProcAddress";

// All arguments are integers and pointers, at most six: a stand-in that forwards six registers
// forwards every argument.
using Function = long (*)(long, long, long, long, long, long);

struct StandIn {
  const char* name = nullptr;
  Function real = nullptr;
  bool finds = false;
  std::atomic<uint64_t> calls{0};
  uint64_t named = 0;
};

// One for each function returned so far. A name may stand for several functions, by version and by
// default stream.
constexpr size_t kStandIns = 128;
std::array<StandIn, kStandIns> stand_ins;
std::mutex mutex;

void* Watched(const char* name, void* real);

long Call(StandIn& to, const std::array<long, 6>& a) {
  if (!to.finds) to.calls.fetch_add(1, std::memory_order_relaxed);
  const long result = to.real(a[0], a[1], a[2], a[3], a[4], a[5]);
  if (!to.finds || result != 0) return result;
  // cuGetProcAddress(const char* symbol, void** function, ...)
  void** const found = reinterpret_cast<void**>(a[1]);
  if (found != nullptr) *found = Watched(reinterpret_cast<const char*>(a[0]), *found);
  return result;
}

template <size_t I, typename... Registers>
long Enter(Registers... registers) {
  return Call(stand_ins[I], {registers...});
}

template <size_t... I>
constexpr std::array<Function, kStandIns> Entries(std::index_sequence<I...>) {
  return {Enter<I, long, long, long, long, long, long>...};
}
constexpr std::array<Function, kStandIns> kEntries = Entries(std::make_index_sequence<kStandIns>());

// True if `name` is `plain`, or `plain` with suffixes such as _v2 and _ptsz.
bool IsCalled(const char* name, const char* plain) {
  const size_t length = std::strlen(plain);
  return std::strncmp(name, plain, length) == 0 && (name[length] == 0 || name[length] == '_');
}

const char* PlainName(const char* name) {
  if (IsCalled(name, kFinder)) return kFinder;
  for (const char* plain : kAllocating) {
    if (IsCalled(name, plain)) return plain;
  }
  return nullptr;
}

// The function to return for `real`: a stand-in if it is counted, else `real` itself.
void* Watched(const char* name, void* real) {
  const char* const plain = PlainName(name);
  if (plain == nullptr || real == nullptr) return real;
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < kStandIns; ++i) {
    StandIn& to = stand_ins[i];
    const bool ours = to.real != nullptr && reinterpret_cast<void*>(kEntries[i]) == real;
    if (ours) return real;
    if (to.real == nullptr) {
      to.name = plain;
      to.real = reinterpret_cast<Function>(real);
      to.finds = plain == kFinder;
    }
    if (reinterpret_cast<void*>(to.real) == real) return reinterpret_cast<void*>(kEntries[i]);
  }
  std::abort();
}

using Dlsym = void* (*)(void*, const char*);

Dlsym RealDlsym() {
  static const Dlsym real = [] {
    void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (found == nullptr) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return reinterpret_cast<Dlsym>(found);
  }();
  return real;
}

}  // namespace

extern "C" {

// Replaces dlsym of the C library.
void* dlsym(void* handle, const char* name) noexcept {
  return Watched(name, RealDlsym()(handle, name));
}

uint64_t QuireAllocationCalls() {
  uint64_t calls = 0;
  for (const StandIn& to : stand_ins) calls += to.calls.load(std::memory_order_relaxed);
  return calls;
}

const char* QuireAllocationNames() {
  static std::array<char, 1024> names;
  names[0] = 0;
  for (StandIn& to : stand_ins) {
    const uint64_t calls = to.calls.load(std::memory_order_relaxed);
    if (calls == to.named) continue;
    to.named = calls;
    if (std::strlen(names.data()) + std::strlen(to.name) + 2 > names.size()) break;
    std::strcat(std::strcat(names.data(), to.name), " ");
  }
  return names.data();
}

}  // extern "C"

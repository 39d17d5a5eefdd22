// Counts the memory that operator new hands out: replaces it, and operator delete, for the whole
// program. Included by one source file of a test or benchmark, because a program may do so once.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace quire {

struct Allocations {
  int64_t num = 0;
  int64_t bytes = 0;    // as asked for
  int64_t largest = 0;  // bytes of the largest one

  Allocations& operator+=(const Allocations& more) {
    num += more.num;
    bytes += more.bytes;
    largest = std::max(largest, more.largest);
    return *this;
  }
};

// Counters since the program's start, of all threads.
struct AllocationCounters {
  std::atomic<int64_t> num{0};
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> largest{0};     // since the last AllocationsOf began
  std::atomic<int64_t> live_bytes{0};  // not freed; with malloc's rounding
};
inline AllocationCounters allocation_counters;

// The allocations of all threads while `call` runs. Not to be nested.
template <typename Call>
Allocations AllocationsOf(Call call) {
  AllocationCounters& counters = allocation_counters;
  counters.largest = 0;
  const int64_t num = counters.num, bytes = counters.bytes;
  call();
  return {.num = counters.num - num, .bytes = counters.bytes - bytes, .largest = counters.largest};
}

inline void FreeCounted(void* memory) {
  if (memory == nullptr) return;
  allocation_counters.live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace quire

// Not inlined: else the compiler sees memory from new in free, and complains.
[[gnu::noinline]] void* operator new(size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  quire::AllocationCounters& counters = quire::allocation_counters;
  const auto bytes = static_cast<int64_t>(size);
  ++counters.num;
  counters.bytes += bytes;
  if (bytes > counters.largest) counters.largest = bytes;
  counters.live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { quire::FreeCounted(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  quire::FreeCounted(memory);
}

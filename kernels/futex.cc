// Wraps the system call, for which the C library has no function.
#include "kernels/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace quire {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Not the private kind, so that it works in shared memory; that costs a look-up of the page.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t old, int64_t deadline_ns) {
  // FUTEX_WAIT_BITSET takes an absolute time, of CLOCK_MONOTONIC, which is the steady clock.
  const timespec deadline{.tv_sec = static_cast<time_t>(deadline_ns / 1'000'000'000),
                          .tv_nsec = static_cast<long>(deadline_ns % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, old,
          deadline_ns == kNoFutexDeadline ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void FutexWake(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace quire

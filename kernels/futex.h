// FutexWait, FutexWake: sleep on a word of memory, which processes may share, until it changes.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

namespace quire {

inline constexpr int64_t kNoFutexDeadline = std::numeric_limits<int64_t>::max();

// Sleeps while `word` holds `old`, until FutexWake or `deadline_ns` of the steady clock. May return
// early without a reason: check the word again.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t old,
               int64_t deadline_ns = kNoFutexDeadline);
// Wakes all threads that sleep on `word`. Store the new value first.
void FutexWake(const std::atomic<uint32_t>& word);

}  // namespace quire

// Sleeping on a word of memory, which may be shared with other processes, until somebody changes
// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

namespace quire {

inline constexpr int64_t kNoFutexDeadline = std::numeric_limits<int64_t>::max();

// Sleeps while `word` holds `old`, until FutexWake or `deadline_ns` of the steady clock. May return
// early for no reason: look again.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t old,
               int64_t deadline_ns = kNoFutexDeadline);
// Wakes everybody who sleeps on `word`; it must hold its new value already.
void FutexWake(const std::atomic<uint32_t>& word);

}  // namespace quire

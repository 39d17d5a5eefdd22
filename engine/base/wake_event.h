// WakeEvent: lets one thread sleep until any other has news for it. Notifying a thread that is
// awake costs one atomic exchange; a notification is never lost. With its word in shared memory,
// other processes can notify too.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/futex.h"

namespace quire {

class WakeEvent {
 public:
  WakeEvent() = default;
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;

  // Any thread.
  void Notify() { Notify(*word_); }
  // By its word alone: how another process does it. A process that dies in here may leave a
  // notification that wakes nobody at once; see kSharedPatienceNs.
  static void Notify(std::atomic<uint32_t>& word) {
    if (word.exchange(kNotified, std::memory_order_acq_rel) == kSleeping) FutexWake(word);
  }

  // The one sleeping thread: returns once notified since the last Wait, or at `deadline_ns` of the
  // steady clock, or for no reason.
  void Wait(int64_t deadline_ns) {
    uint32_t expected = kAwake;
    if (word_->compare_exchange_strong(expected, kSleeping, std::memory_order_acq_rel)) {
      if (shared_ != nullptr) {
        deadline_ns = std::min(deadline_ns, SteadyNowNs() + kSharedPatienceNs);
      }
      while (word_->load(std::memory_order_acquire) == kSleeping &&
             (deadline_ns == kNoFutexDeadline || SteadyNowNs() < deadline_ns)) {
        FutexWait(*word_, kSleeping, deadline_ns);
      }
    }
    // An exchange, so that what the notifier wrote before Notify is seen from here on.
    word_->exchange(kAwake, std::memory_order_acq_rel);
  }

  // From now on the state lies in `word`, which is zero and stays mapped while this holds it. Only
  // before any other thread knows of this event.
  void Share(std::shared_ptr<std::atomic<uint32_t>> word) {
    shared_ = std::move(word);
    word_ = shared_.get();
  }

 private:
  static constexpr uint32_t kAwake = 0, kNotified = 1, kSleeping = 2;
  // What the death of a notifying process can cost.
  static constexpr int64_t kSharedPatienceNs = 100'000'000;

  std::atomic<uint32_t> own_{kAwake};
  std::atomic<uint32_t>* word_ = &own_;
  // Shared because threads may notify after the other holders of the memory are gone.
  std::shared_ptr<std::atomic<uint32_t>> shared_;
};

}  // namespace quire

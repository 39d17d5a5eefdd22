// WakeEvent: lets one thread sleep until another thread notifies it. Notifying a thread that is
// awake costs one atomic exchange; no notification is lost. With its word in shared memory, other
// processes can notify too.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "engine/base/clock.h"
#include "kernels/futex.h"

namespace quire {

class WakeEvent {
 public:
  WakeEvent() = default;
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;

  // Any thread.
  void Notify() { Notify(*word_); }
  // By its word alone, for other processes. If the process dies in this call, the sleeper may
  // notice the notification late; see kSharedPatienceNs.
  static void Notify(std::atomic<uint32_t>& word) {
    if (word.exchange(kNotified, std::memory_order_acq_rel) == kSleeping) FutexWake(word);
  }

  // The one sleeping thread: returns once notified since the last Wait, at `deadline_ns` of the
  // steady clock, or early without a reason.
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
    // An exchange, so that this thread sees everything written before Notify.
    word_->exchange(kAwake, std::memory_order_acq_rel);
  }

  // Moves the state to `word`, which is zero and stays mapped while this holds it. Call it before
  // another thread uses this event.
  void Share(std::shared_ptr<std::atomic<uint32_t>> word) {
    shared_ = std::move(word);
    word_ = shared_.get();
  }

 private:
  static constexpr uint32_t kAwake = 0, kNotified = 1, kSleeping = 2;
  // The longest delay that the death of a notifying process can cause.
  static constexpr int64_t kSharedPatienceNs = 100'000'000;

  std::atomic<uint32_t> own_{kAwake};
  std::atomic<uint32_t>* word_ = &own_;
  // Shared: threads may notify after the other owners of the memory are gone.
  std::shared_ptr<std::atomic<uint32_t>> shared_;
};

}  // namespace quire

// WakeEvent: lets one thread sleep until any other has news for it. Notifying a thread that is
// awake costs one atomic exchange; a notification is never lost.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>

namespace quire {

class WakeEvent {
 public:
  // Any thread.
  void Notify() {
    if (state_.exchange(kNotified, std::memory_order_acq_rel) != kSleeping) return;
    // The sleeper set kSleeping under the lock, so after this it is inside wait.
    { std::lock_guard lock(mutex_); }
    wake_.notify_one();
  }

  // The one sleeping thread: returns once notified since the last Wait, or at `deadline_ns` of the
  // steady clock.
  void Wait(int64_t deadline_ns) {
    int expected = kAwake;
    std::unique_lock lock(mutex_);
    if (state_.compare_exchange_strong(expected, kSleeping, std::memory_order_acq_rel)) {
      const auto notified = [this] { return state_.load(std::memory_order_acquire) == kNotified; };
      if (deadline_ns == std::numeric_limits<int64_t>::max()) {
        wake_.wait(lock, notified);
      } else {
        wake_.wait_until(
            lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns)),
            notified);
      }
    }
    // An exchange, so that what the notifier wrote before Notify is seen from here on.
    state_.exchange(kAwake, std::memory_order_acq_rel);
  }

 private:
  enum : int { kAwake, kNotified, kSleeping };
  std::atomic<int> state_{kAwake};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace quire

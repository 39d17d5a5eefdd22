// LaunchGate: lets the launches of a step go before the pinning of host memory. While the driver
// pins a piece it launches nothing. A step with prompts is hundreds of launches, and without the
// gate pieces pinned back to back hold up many of them (docs/adr/0007).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace quire {

class LaunchGate {
 public:
  // The longest wait of Await. Host memory becomes ready also where launches never end.
  static constexpr std::chrono::milliseconds kPatience{20};

  // While one exists, no piece begins to be pinned. Of the thread that launches; one at a time.
  class Launching {
   public:
    explicit Launching(LaunchGate& gate) : gate_(gate) { gate_.Set(true); }
    ~Launching() { gate_.Set(false); }
    Launching(const Launching&) = delete;
    Launching& operator=(const Launching&) = delete;

   private:
    LaunchGate& gate_;
  };

  // Waits until no step is being launched, kPatience at most; false: one still is. Of the thread
  // that pins.
  bool Await() {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, kPatience, [this] { return !launching_; });
  }

 private:
  void Set(bool launching) {
    {
      const std::lock_guard lock(mutex_);
      launching_ = launching;
    }
    if (!launching) ended_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  bool launching_ = false;
};

}  // namespace quire

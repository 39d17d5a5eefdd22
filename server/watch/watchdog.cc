// A thread that waits to be armed, then to be disarmed.
#include "server/watch/watchdog.h"

#include <chrono>
#include <utility>

namespace quire {

Watchdog::Watchdog(std::function<void()> bite)
    : bite_(std::move(bite)), thread_([this] { Wait(); }) {}

Watchdog::~Watchdog() {
  Disarm();
  thread_.join();
}

void Watchdog::Arm(double seconds) {
  const std::lock_guard lock(mutex_);
  seconds_ = seconds;
  armed_ = true;
  changed_.notify_all();
}

void Watchdog::Disarm() {
  const std::lock_guard lock(mutex_);
  disarmed_ = true;
  changed_.notify_all();
}

void Watchdog::Wait() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return armed_ || disarmed_; });
    const std::chrono::duration<double> allowed(seconds_);
    if (changed_.wait_for(lock, allowed, [this] { return disarmed_; })) return;
  }
  bite_();
}

}  // namespace quire

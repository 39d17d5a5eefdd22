// Watchdog: does something unless it is told in time that it need not. gRPC's shutdown may never
// return.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace quire {

class Watchdog {
 public:
  // Starts the thread on which `bite` is called, at most once: by the time of Arm the system may
  // refuse a thread.
  explicit Watchdog(std::function<void()> bite);
  ~Watchdog();  // as Disarm; waits for a bite that has begun
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Bites unless Disarm is called within `seconds`. Once; any thread.
  void Arm(double seconds);
  // Idempotent; any thread. Does not wait.
  void Disarm();

 private:
  void Wait();

  const std::function<void()> bite_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  double seconds_ = 0;
  bool armed_ = false;
  bool disarmed_ = false;
  std::thread thread_;  // last, because it uses the members above
};

}  // namespace quire

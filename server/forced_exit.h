// ForcedExit: ends the process unless it is destroyed in time: gRPC's shutdown may never return.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace quire {

class ForcedExit {
 public:
  // `code`: of the process, if it comes to that. Then `report` is called first, on a thread of its
  // own; it logs what has not ended, and waits for nothing.
  ForcedExit(double seconds, int code, std::function<void()> report);
  ~ForcedExit();
  ForcedExit(const ForcedExit&) = delete;
  ForcedExit& operator=(const ForcedExit&) = delete;

 private:
  void Wait(double seconds);

  const int code_;
  const std::function<void()> report_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool disarmed_ = false;  // under mutex_
  std::thread thread_;     // last, because it uses the members above
};

}  // namespace quire

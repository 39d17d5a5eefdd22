// ForcedExit: ends the process unless it is destroyed in time: gRPC's shutdown may never return.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace quire {

class ForcedExit {
 public:
  // If it comes to that, `report` is called first, on a thread of its own: it logs what has not
  // ended, waits for nothing, and returns the code of the process.
  ForcedExit(double seconds, std::function<int()> report);
  ~ForcedExit();
  ForcedExit(const ForcedExit&) = delete;
  ForcedExit& operator=(const ForcedExit&) = delete;

 private:
  void Wait(double seconds);

  const std::function<int()> report_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool disarmed_ = false;  // under mutex_
  std::thread thread_;     // last, because it uses the members above
};

}  // namespace quire

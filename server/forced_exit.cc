// A thread that waits.
#include "server/forced_exit.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "engine/base/log.h"

namespace quire {

ForcedExit::ForcedExit(double seconds, int code, std::function<void()> report)
    : code_(code), report_(std::move(report)), thread_([this, seconds] { Wait(seconds); }) {}

ForcedExit::~ForcedExit() {
  {
    const std::lock_guard lock(mutex_);
    disarmed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ForcedExit::Wait(double seconds) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                        [this] { return disarmed_; })) {
    return;
  }
  report_();
  StopLog();
  _exit(code_);
}

}  // namespace quire

// Sleeps until the first time in a sorted map.
#include "server/session/archive/deadline_thread.h"

#include <chrono>

#include "engine/base/clock.h"

namespace quire {

DeadlineThread::DeadlineThread() : thread_([this] { Run(); }) {}

DeadlineThread::~DeadlineThread() { Stop(); }

void DeadlineThread::At(int64_t time_ns, std::function<void()> job) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    const auto added = jobs_.emplace(time_ns, std::move(job));
    first = added == jobs_.begin();
  }
  if (first) wake_.notify_one();
}

void DeadlineThread::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void DeadlineThread::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (jobs_.empty()) {
      if (stopping_) return;
      wake_.wait(lock);
      continue;
    }
    const int64_t left_ns = jobs_.begin()->first - SteadyNowNs();
    if (left_ns > 0 && !stopping_) {
      wake_.wait_for(lock, std::chrono::nanoseconds(left_ns));
      continue;
    }
    auto job = jobs_.extract(jobs_.begin());
    lock.unlock();
    job.mapped()();
    lock.lock();
  }
}

}  // namespace quire

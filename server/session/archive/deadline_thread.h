// DeadlineThread: runs short jobs at their times, on a thread of its own. It bounds how long a call
// waits for a disk. OnceCall: a job that two threads may want to run, and that runs once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace quire {

class OnceCall {
 public:
  explicit OnceCall(std::function<void()> job) : job_(std::move(job)) {}
  // Runs `before`, then the job, unless another call has.
  template <typename Before>
  void Run(Before before) {
    if (called_.exchange(true)) return;
    before();
    job_();
    job_ = nullptr;
  }

 private:
  std::atomic<bool> called_{false};
  std::function<void()> job_;
};

class DeadlineThread {
 public:
  DeadlineThread();
  ~DeadlineThread();  // as Stop
  // Runs `job` at this time of the steady clock, or at once when the thread stops. Any thread;
  // never blocks.
  void At(int64_t time_ns, std::function<void()> job);
  // Runs the jobs that wait, then ends the thread. Idempotent; not from a job.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::multimap<int64_t, std::function<void()>> jobs_;  // under mutex_
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace quire

// WorkThreads: a few threads that run jobs as they come, for reading from a disk that answers
// several reads at once.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quire {

class WorkThreads {
 public:
  explicit WorkThreads(int threads);
  ~WorkThreads();  // as Stop
  int size() const { return static_cast<int>(threads_.size()); }
  // Any thread; never blocks. Once stopped, jobs are dropped.
  void Post(std::function<void()> job);
  // Runs the queued jobs, then ends the threads. Idempotent; not from a job.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;  // under mutex_
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire

// SerialThread: one thread that runs jobs one after another, so state that only jobs touch needs no
// lock. The calls of the Sessions service do all work here that the scheduler does not do, in short
// jobs or in pieces of a megabyte.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quire {

class SerialThread {
 public:
  SerialThread();
  ~SerialThread();  // calls Stop
  // Any thread; never blocks. Once stopped, jobs are dropped. The queue is bounded by its users:
  // each has a few jobs at a time.
  void Post(std::function<void()> job);
  // Runs the queued jobs, then ends the thread. Idempotent; not from a job.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> jobs_;  // under mutex_
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace quire

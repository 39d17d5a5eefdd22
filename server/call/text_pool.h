// TextPool: threads for work that is linear in a client's text (templates, tokenising), so that
// gRPC's threads do none of it. The queue is bounded by jobs and by the bytes of text they hold.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace quire {

class TextPool {
 public:
  TextPool(int threads, size_t max_jobs, size_t max_bytes);
  // Runs the queued jobs, then joins.
  ~TextPool();

  // Queues `job`, which holds `bytes` of text; UNAVAILABLE when the queue is full. Any thread.
  absl::Status Run(size_t bytes, std::function<void()> job);

 private:
  void Work(int thread);

  const size_t max_jobs_;
  const size_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::pair<size_t, std::function<void()>>> jobs_;  // under mutex_
  size_t bytes_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire

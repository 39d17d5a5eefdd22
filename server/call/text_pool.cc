// A bounded queue and its threads.
#include "server/call/text_pool.h"

#include "engine/base/timeline.h"
#include "server/call/status_codec.h"

namespace quire {

TextPool::TextPool(int threads, size_t max_jobs, size_t max_bytes)
    : max_jobs_(max_jobs), max_bytes_(max_bytes) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Work(i); });
}

TextPool::~TextPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status TextPool::Run(size_t bytes, std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    // An empty queue takes a job of any size: messages have their own bound.
    if (jobs_.size() >= max_jobs_ || (!jobs_.empty() && bytes_ + bytes > max_bytes_)) {
      return Refusal(absl::StatusCode::kUnavailable, "QUEUE_FULL",
                     "too much text waits to be tokenised; retry later", 1);
    }
    bytes_ += bytes;
    jobs_.emplace_back(bytes, std::move(job));
  }
  wake_.notify_one();
  return absl::OkStatus();
}

void TextPool::Work(int thread) {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    auto [bytes, job] = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    {
      const TimelineSpan span({.track = Timeline::Track::kText,
                               .lane = thread,
                               .name = "text",
                               .args = {{{"bytes", static_cast<int64_t>(bytes)}}}});
      job();
      job = nullptr;  // what it holds goes outside the lock
    }
    lock.lock();
    bytes_ -= bytes;
  }
}

}  // namespace quire

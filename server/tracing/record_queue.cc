// A deque under a mutex. A push wakes the consumer only when it has something to do, so that a
// burst of requests costs no wake-up each.
#include "server/tracing/record_queue.h"

#include <chrono>
#include <utility>

namespace quire {

bool RecordQueue::Push(RequestRecord record) {
  const int64_t spans = NumSpans(record);
  const int64_t bytes = record.bytes();
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || spans_ + spans > bounds_.max_spans || bytes_ + bytes > bounds_.max_bytes) {
      return false;
    }
    const bool was_enough = spans_ >= wanted_spans_;
    wake = records_.empty();
    records_.push_back(std::move(record));
    spans_ += spans;
    bytes_ += bytes;
    wake = wake || (!was_enough && spans_ >= wanted_spans_);
  }
  if (wake) changed_.notify_one();
  return true;
}

std::vector<RequestRecord> RecordQueue::Take(int64_t batch_spans, int64_t linger_ns) {
  std::unique_lock lock(mutex_);
  wanted_spans_ = batch_spans;
  changed_.wait(lock, [this] { return closed_ || !records_.empty(); });
  changed_.wait_for(lock, std::chrono::nanoseconds(linger_ns),
                    [&] { return closed_ || spans_ >= batch_spans; });
  wanted_spans_ = 0;
  std::vector<RequestRecord> batch;
  for (int64_t taken = 0; !records_.empty() && taken < batch_spans;) {
    const int64_t spans = NumSpans(records_.front());
    taken += spans;
    spans_ -= spans;
    bytes_ -= records_.front().bytes();
    batch.push_back(std::move(records_.front()));
    records_.pop_front();
  }
  return batch;
}

void RecordQueue::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

int64_t RecordQueue::spans() const {
  const std::lock_guard lock(mutex_);
  return spans_;
}

}  // namespace quire

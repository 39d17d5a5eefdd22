// RecordQueue: the bounded queue between the threads that end requests and the exporter's thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "server/tracing/request_record.h"

namespace quire {

class RecordQueue {
 public:
  struct Bounds {
    int64_t max_spans = 0;
    int64_t max_bytes = 0;
  };

  explicit RecordQueue(const Bounds& bounds) : bounds_(bounds) {}

  // Takes the record, or refuses it when the queue is full or closed. Any thread; waits for no
  // consumer.
  bool Push(RequestRecord record);
  // Waits for `batch_spans` spans, or for `linger_ns` after the first record, or for Close. Then
  // returns the oldest records of about that many spans; empty only when the queue is closed and
  // empty. One consumer.
  std::vector<RequestRecord> Take(int64_t batch_spans, int64_t linger_ns);
  // From now on Push refuses and Take does not wait. Idempotent.
  void Close();
  // Spans in the queue.
  int64_t spans() const;

 private:
  const Bounds bounds_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  std::deque<RequestRecord> records_;
  int64_t spans_ = 0;
  int64_t bytes_ = 0;
  int64_t wanted_spans_ = 0;  // of the Take that waits
  bool closed_ = false;
};

}  // namespace quire

// The queue in front of the exporter: bounds, batches, and waits that end.
#include "server/tracing/record_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace quire {
namespace {

constexpr int64_t kNoLinger = 0;
constexpr int64_t kLongLinger = int64_t{3600} * 1'000'000'000;

// Two spans: the server's and the arrival's.
RequestRecord Record(const std::string& id = "") {
  return {.request_id = id, .arrived_ns = 10, .closed_ns = 20};
}

TEST(RecordQueueTest, RefusesBeyondItsSpansAndTakesAgainOnceDrained) {
  RecordQueue queue({.max_spans = 5, .max_bytes = 1 << 20});
  EXPECT_TRUE(queue.Push(Record("a")));
  EXPECT_TRUE(queue.Push(Record("b")));
  EXPECT_FALSE(queue.Push(Record("c"))) << "it would have 6 spans";
  EXPECT_EQ(queue.spans(), 4);
  const std::vector<RequestRecord> batch = queue.Take(1024, kNoLinger);
  ASSERT_EQ(batch.size(), 2u);
  EXPECT_EQ(batch[0].request_id, "a");
  EXPECT_EQ(batch[1].request_id, "b");
  EXPECT_EQ(queue.spans(), 0);
  EXPECT_TRUE(queue.Push(Record("c")));
}

TEST(RecordQueueTest, RefusesBeyondItsBytes) {
  const int64_t each = Record(std::string(1000, 'x')).bytes();
  EXPECT_GE(each, 1000);
  RecordQueue queue({.max_spans = 1000, .max_bytes = 3 * each});
  int taken = 0;
  for (int i = 0; i < 10; ++i) taken += queue.Push(Record(std::string(1000, 'x')));
  EXPECT_EQ(taken, 3);
}

TEST(RecordQueueTest, GivesBatchesOfTheSizeAskedForInOrder) {
  RecordQueue queue({.max_spans = 1000, .max_bytes = 1 << 20});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(queue.Push(Record(std::to_string(i))));
  EXPECT_EQ(queue.Take(4, kLongLinger).size(), 2u);
  EXPECT_EQ(queue.Take(3, kLongLinger).size(), 2u) << "a record is not divided";
  const std::vector<RequestRecord> last = queue.Take(100, kNoLinger);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].request_id, "4");
}

TEST(RecordQueueTest, AWaitingTakeEndsWithAFullBatchBeforeItsLinger) {
  RecordQueue queue({.max_spans = 1000, .max_bytes = 1 << 20});
  std::thread producer([&queue] {
    for (int i = 0; i < 4; ++i) queue.Push(Record());
  });
  EXPECT_EQ(queue.Take(8, kLongLinger).size(), 4u);
  producer.join();
}

TEST(RecordQueueTest, CloseEndsAWaitAndKeepsWhatIsQueued) {
  RecordQueue queue({.max_spans = 1000, .max_bytes = 1 << 20});
  ASSERT_TRUE(queue.Push(Record("a")));
  std::thread closer([&queue] { queue.Close(); });
  EXPECT_EQ(queue.Take(1000, kLongLinger).size(), 1u);
  EXPECT_TRUE(queue.Take(1000, kLongLinger).empty());
  closer.join();
  EXPECT_FALSE(queue.Push(Record("b")));
}

TEST(RecordQueueTest, ManyThreadsLoseNothingThatWasTaken) {
  RecordQueue queue({.max_spans = 64, .max_bytes = 1 << 20});
  std::atomic<int64_t> accepted{0};
  std::vector<std::thread> producers;
  for (int t = 0; t < 4; ++t) {
    producers.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) accepted += queue.Push(Record());
    });
  }
  int64_t received = 0;
  std::thread consumer([&] {
    for (;;) {
      const std::vector<RequestRecord> batch = queue.Take(16, kNoLinger);
      if (batch.empty()) return;
      received += static_cast<int64_t>(batch.size());
    }
  });
  for (std::thread& producer : producers) producer.join();
  queue.Close();
  consumer.join();
  EXPECT_EQ(received, accepted.load());
  EXPECT_GT(received, 0);
}

}  // namespace
}  // namespace quire

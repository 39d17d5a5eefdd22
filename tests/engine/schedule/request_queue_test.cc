// RequestQueue: order, and token counts, against a sorted list.
#include "engine/schedule/request_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace quire {
namespace {

struct Waiting {
  Sequence sequence;
  bool queued = false;
};

std::vector<std::unique_ptr<Waiting>> MakeSequences(int count, std::mt19937& random) {
  std::vector<std::unique_ptr<Waiting>> all;
  for (int i = 0; i < count; ++i) {
    auto waiting = std::make_unique<Waiting>();
    waiting->sequence.request = std::make_unique<Request>();
    waiting->sequence.request->priority = static_cast<int32_t>(random() % 3);
    waiting->sequence.request->arrival_ns = static_cast<int64_t>(random() % 5);
    waiting->sequence.order = i;
    waiting->sequence.num_prompt = static_cast<int32_t>(1 + random() % 9);
    all.push_back(std::move(waiting));
  }
  return all;
}

TEST(RequestQueueTest, OrdersByPriorityThenArrivalThenAdding) {
  std::mt19937 random(3);
  const auto all = MakeSequences(40, random);
  RequestQueue queue(10);  // fewer than will be inserted: the queue may grow
  for (int i = 0; i < 3000; ++i) {
    Waiting& one = *all[random() % all.size()];
    one.queued ? queue.Erase(one.sequence) : queue.Insert(one.sequence);
    one.queued = !one.queued;
    std::vector<const Sequence*> expected;
    int64_t tokens = 0;
    for (const auto& waiting : all) {
      if (!waiting->queued) continue;
      expected.push_back(&waiting->sequence);
      tokens += waiting->sequence.known();
    }
    std::sort(expected.begin(), expected.end(), [](const Sequence* a, const Sequence* b) {
      const Request& x = *a->request;
      const Request& y = *b->request;
      return std::tuple(-x.priority, x.arrival_ns, a->order) <
             std::tuple(-y.priority, y.arrival_ns, b->order);
    });
    std::vector<const Sequence*> order;
    for (const auto& entry : queue) order.push_back(entry.sequence);
    ASSERT_EQ(order, expected);
    ASSERT_EQ(queue.num_tokens(), tokens);
    ASSERT_EQ(queue.size(), expected.size());
  }
}

}  // namespace
}  // namespace quire

// When requests become eligible: by their times, by the slots, in order; and that the pacer's
// thread sends the queue's requests at their times. Covered here without a clock.
#include "clients/load/run/send_queue.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "clients/load/run/pacer.h"

namespace quire::load {
namespace {

DueSend At(int64_t due_ns, bool takes_slot = true) {
  return {.due_ns = due_ns, .takes_slot = takes_slot, .stream = nullptr};
}

// Due and eligible times of all that is sent by now.
std::vector<std::pair<int64_t, int64_t>> Sent(SendQueue& queue, int64_t now_ns) {
  std::vector<std::pair<int64_t, int64_t>> sent;
  while (const auto taken = queue.Take(now_ns)) {
    sent.emplace_back(taken->send.due_ns, taken->eligible_ns);
  }
  return sent;
}

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

TEST(SendQueueTest, WithoutALimitEachIsSentWhenDue) {
  SendQueue queue;
  EXPECT_EQ(queue.NextNs(), SendQueue::kNever);
  queue.Add(At(30));
  queue.Add(At(10));
  queue.Add(At(20));
  EXPECT_EQ(queue.NextNs(), 10);
  EXPECT_EQ(Sent(queue, 9), Pairs());
  EXPECT_EQ(Sent(queue, 25), (Pairs{{10, 10}, {20, 20}}));
  EXPECT_EQ(queue.NextNs(), 30);
}

TEST(SendQueueTest, ASlotMakesTheNextDueEligible) {
  SendQueue queue({0});
  for (const int64_t due : {10, 20, 30}) queue.Add(At(due));
  EXPECT_EQ(Sent(queue, 100), (Pairs{{10, 10}}));
  EXPECT_EQ(queue.NextNs(), SendQueue::kNever);
  queue.Release(55);
  EXPECT_EQ(queue.NextNs(), 55);
  EXPECT_EQ(Sent(queue, 54), Pairs());
  EXPECT_EQ(Sent(queue, 100), (Pairs{{20, 55}}));  // waited for the slot, not for us
  queue.Release(25);
  EXPECT_EQ(Sent(queue, 100), (Pairs{{30, 30}}));  // the slot waited
}

TEST(SendQueueTest, SlotsOpenOneByOne) {
  SendQueue queue({100, 300, 200});
  for (int i = 0; i < 4; ++i) queue.Add(At(0));
  EXPECT_EQ(Sent(queue, 250), (Pairs{{0, 100}, {0, 200}}));
  EXPECT_EQ(queue.NextNs(), 300);
}

TEST(SendQueueTest, LaterTurnsNeedNoSlot) {
  SendQueue queue({0});
  queue.Add(At(10));
  queue.Add(At(20));
  queue.Add(At(30, /*takes_slot=*/false));
  EXPECT_EQ(Sent(queue, 100), (Pairs{{10, 10}, {30, 30}}));
}

TEST(SendQueueTest, EqualTimesKeepTheirOrder) {
  SendQueue queue;
  for (int i = 0; i < 100; ++i) queue.Add(At(i % 2, i % 3 == 0));
  EXPECT_EQ(Sent(queue, 10).size(), 100u);
  for (int i = 0; i < 100; ++i) queue.Add(At(0));
  EXPECT_EQ(queue.TakeAll().size(), 100u);
  EXPECT_EQ(queue.NextNs(), SendQueue::kNever);
}

// Records the pacer's sends.
class Notes {
 public:
  Pacer::Send Sender() {
    return [this](EligibleSend sent) {
      std::lock_guard lock(mutex_);
      due_.push_back(sent.send.due_ns);
      late_ &= NowNs() - base_ns >= sent.eligible_ns;
      changed_.notify_all();
    };
  }
  std::vector<int64_t> Await(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return due_.size() >= count; });
    return due_;
  }
  bool never_early() {
    std::lock_guard lock(mutex_);
    return late_;
  }
  const int64_t base_ns = NowNs();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> due_;
  bool late_ = true;
};

TEST(PacerTest, SendsInOrderAndNeverEarly) {
  Notes notes;
  const int64_t soon = NowNs() - notes.base_ns;
  SendQueue queue;
  for (const int64_t ms : {20, 5, 10, 0}) queue.Add(At(soon + ms * 1'000'000));
  Pacer pacer(std::move(queue), notes.base_ns, notes.Sender());
  EXPECT_EQ(notes.Await(4),
            (std::vector<int64_t>{soon, soon + 5'000'000, soon + 10'000'000, soon + 20'000'000}));
  EXPECT_TRUE(notes.never_early());
}

TEST(PacerTest, AnEarlierRequestAndAFreedSlotWakeIt) {
  Notes notes;
  const int64_t now = NowNs() - notes.base_ns;
  const int64_t hour = 3'600'000'000'000;
  Pacer pacer(SendQueue({0}), notes.base_ns, notes.Sender());
  pacer.Add(At(now + hour));
  pacer.Add(At(now));
  EXPECT_EQ(notes.Await(1), (std::vector<int64_t>{now}));
  pacer.Add(At(now + 1));
  pacer.Release();
  EXPECT_EQ(notes.Await(2).back(), now + 1);
}

TEST(PacerTest, StopReturnsWhatWasNotSent) {
  Notes notes;
  const int64_t far = NowNs() - notes.base_ns + 3'600'000'000'000;
  Pacer pacer(SendQueue(), notes.base_ns, notes.Sender());
  EXPECT_TRUE(pacer.Add(At(far)));
  EXPECT_TRUE(pacer.Add(At(far + 1)));
  EXPECT_EQ(pacer.Stop().size(), 2u);
  EXPECT_FALSE(pacer.Add(At(0)));
}

}  // namespace
}  // namespace quire::load

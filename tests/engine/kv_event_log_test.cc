// KvEventLog: snapshots, replays, slow readers, and a scheduler that never waits. The tree is
// driven by hand.
// Covers engine/kv_block_set.cc
#include "engine/kv_event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "engine/schedule/kv/prefix_tree.h"
#include "tests/engine/schedule/event_replay.h"

namespace quire {
namespace {

constexpr TenantId kTenant = 7;
constexpr int32_t kBlockSize = 2;

class KvEventLogTest : public testing::Test {
 protected:
  explicit KvEventLogTest(int32_t num_blocks = 200)
      : pool_(num_blocks + 1),
        tree_(pool_, kBlockSize, 0),
        log_(kBlockSize,
             {.max_batches = 4,
              .max_tenants = 2,
              .max_subscriptions = 5,
              .max_subscriptions_of_tenant = 3},
             [this] { ++wakes_; }) {}

  // A cached prompt of `num_blocks` blocks that begins with `first`.
  void Cache(int32_t first, int32_t num_blocks = 1, TenantId tenant = kTenant) {
    NodeId node = tree_.Find(tenant, {});
    tree_.Hold(node);
    for (int32_t i = 0; i < num_blocks; ++i) {
      const BlockId block = pool_.Take();
      const auto inserted = tree_.Insert(node, std::vector<int32_t>{first, i}, block);
      if (!inserted.adopted) pool_.Release(block);
      tree_.Release(node);
      node = inserted.node;
    }
    tree_.Release(node);
  }
  void Serve() {
    while (log_.Serve(tree_.events())) {
    }
  }
  // A batch of its own.
  void CacheAndServe(int32_t first) {
    Cache(first);
    Serve();
  }
  std::unique_ptr<KvSubscription> Subscribe(KvSubscriptionStart start = {},
                                            TenantId tenant = kTenant) {
    auto subscription = log_.Subscribe(tenant, start, [this] { ++ready_; });
    EXPECT_TRUE(subscription.ok()) << subscription.status();
    return subscription.ok() ? std::move(*subscription) : nullptr;
  }
  // Applies all batches that are there. Each has the next number.
  void Read(KvSubscription& subscription, EventReplay& replay) {
    for (;;) {
      const auto batch = subscription.Next();
      ASSERT_TRUE(batch.ok()) << batch.status();
      if (*batch == nullptr) return;
      EXPECT_EQ((*batch)->tenant, kTenant);
      EXPECT_EQ((*batch)->block_size, kBlockSize);
      if (last_ != 0) {
        EXPECT_EQ((*batch)->sequence, (*batch)->snapshot ? last_ : last_ + 1);
      }
      last_ = (*batch)->sequence;
      replay.Apply((*batch)->events, kBlockSize);
    }
  }
  static std::vector<int32_t> Prompts(const EventReplay& replay) {
    std::vector<int32_t> prompts;
    for (const auto& [hash, block] : replay.blocks()) {
      if (block.depth == 0) prompts.push_back(block.tokens[0]);
    }
    std::ranges::sort(prompts);
    return prompts;
  }

  BlockPool pool_;
  PrefixTree tree_;
  int wakes_ = 0;
  int ready_ = 0;
  uint64_t last_ = 0;  // sequence number read
  KvEventLog log_;
};

class LargeKvEventLogTest : public KvEventLogTest {
 protected:
  LargeKvEventLogTest() : KvEventLogTest(20000) {}
};

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(KvEventLogTest, BeginsWithTheBlocksThatAreThere) {
  Cache(1, 3);
  Cache(2);
  auto subscription = Subscribe();
  EXPECT_EQ(wakes_, 1);
  EventReplay replay;
  Read(*subscription, replay);
  EXPECT_THAT(Prompts(replay), IsEmpty()) << "the scheduler has not been asked yet";
  EXPECT_EQ(ready_, 0);
  Serve();
  EXPECT_EQ(ready_, 1);
  Read(*subscription, replay);
  EXPECT_THAT(Prompts(replay), ElementsAre(1, 2));
  EXPECT_EQ(replay.blocks().size(), 4u);
  CacheAndServe(3);
  EXPECT_EQ(ready_, 2);
  CacheAndServe(4);
  EXPECT_EQ(ready_, 2) << "called again before the reader had read all";
  Read(*subscription, replay);
  EXPECT_THAT(Prompts(replay), ElementsAre(1, 2, 3, 4));
}

TEST_F(KvEventLogTest, GivesALaterReaderASnapshotWithoutAskingTheScheduler) {
  auto first = Subscribe();
  Serve();
  EventReplay replay;
  for (int32_t i = 1; i <= 20; ++i) {
    CacheAndServe(i);
    Read(*first, replay);
  }
  auto second = Subscribe();
  last_ = 0;
  EventReplay later;
  Read(*second, later);
  EXPECT_EQ(later.blocks(), replay.blocks());
  EXPECT_EQ(later.blocks().size(), 20u);
}

TEST_F(LargeKvEventLogTest, SplitsSnapshotsIntoBatchesThatBeginWithClearedAndHaveOneNumber) {
  for (int32_t i = 0; i < 100; ++i) Cache(i, 170);
  auto subscription = Subscribe();
  std::vector<std::shared_ptr<const KvEventBatch>> batches;
  while (batches.empty() || batches.size() < static_cast<size_t>(batches[0]->snapshot->count)) {
    Serve();
    auto batch = *subscription->Next();
    if (batch != nullptr) batches.push_back(batch);
  }
  ASSERT_GT(batches.size(), 1u);
  EventReplay replay;
  for (size_t i = 0; i < batches.size(); ++i) {
    ASSERT_TRUE(batches[i]->snapshot.has_value());
    EXPECT_EQ(batches[i]->snapshot->index, static_cast<int32_t>(i));
    EXPECT_EQ(batches[i]->sequence, batches[0]->sequence);
    for (size_t j = 0; j < batches[i]->events.size(); ++j) {
      const KvEvent& event = batches[i]->events[j];
      EXPECT_EQ(event.kind == KvEvent::Kind::kCleared, i == 0 && j == 0);
      EXPECT_TRUE(event.parent == kNoKvBlock || replay.blocks().contains(event.parent));
      replay.Apply({event}, kBlockSize);
    }
  }
  EXPECT_EQ(replay.blocks().size(), 17000u);
}

TEST_F(KvEventLogTest, ReplaysFromANumberThatIsKept) {
  auto first = Subscribe();
  Serve();
  EventReplay replay;
  for (int32_t i = 1; i <= 3; ++i) {
    CacheAndServe(i);
    Read(*first, replay);
  }
  const uint64_t seen = last_;
  first.reset();
  CacheAndServe(4);
  CacheAndServe(5);
  auto second = Subscribe({.sequence = seen + 1, .snapshot = false});
  Read(*second, replay);
  EXPECT_THAT(Prompts(replay), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(last_, seen + 2);
}

TEST_F(KvEventLogTest, BeginsWithASnapshotOrRefusesWhenTheNumberIsNotKept) {
  auto first = Subscribe();
  Serve();
  EventReplay replay;
  for (int32_t i = 1; i <= 10; ++i) {
    CacheAndServe(i);
    Read(*first, replay);
  }
  for (const uint64_t sequence : {last_ - 8, last_ + 2, uint64_t{1}}) {
    EXPECT_EQ(
        log_.Subscribe(kTenant, {.sequence = sequence, .snapshot = false}, [] {}).status().code(),
        absl::StatusCode::kOutOfRange);
    auto again = Subscribe({.sequence = sequence});
    const auto batch = again->Next();
    ASSERT_TRUE(batch.ok() && *batch != nullptr);
    EXPECT_TRUE((*batch)->snapshot.has_value());
  }
}

TEST_F(KvEventLogTest, EndsAReaderThatIsTooFarBehindAndNoOther) {
  auto slow = Subscribe();
  auto quick = Subscribe();
  Serve();
  EventReplay of_slow, of_quick;
  Read(*slow, of_slow);
  last_ = 0;
  for (int32_t i = 1; i <= 5; ++i) {
    CacheAndServe(i);
    Read(*quick, of_quick);
  }
  EXPECT_EQ(slow->Next().status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(slow->Next().status().code(), absl::StatusCode::kOutOfRange);
  CacheAndServe(6);
  Read(*quick, of_quick);
  EXPECT_THAT(Prompts(of_quick), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(KvEventLogTest, EndsTheEventsOfATenantWithoutReadersAfterTheBatchesThatAreKept) {
  auto subscription = Subscribe();
  Serve();
  EventReplay replay;
  Read(*subscription, replay);
  const uint64_t seen = last_;
  subscription.reset();
  for (int32_t i = 1; i <= 4; ++i) CacheAndServe(i);
  EXPECT_TRUE(tree_.events().Tells(kTenant));
  CacheAndServe(5);
  EXPECT_FALSE(tree_.events().Tells(kTenant));
  // Numbers never come twice, so an old one is never mistaken for a new one.
  subscription = Subscribe({.sequence = seen + 1});
  Serve();
  last_ = 0;
  EventReplay anew;
  Read(*subscription, anew);
  EXPECT_GT(last_, seen + 5);
  EXPECT_THAT(Prompts(anew), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(KvEventLogTest, BoundsSubscriptions) {
  const auto refused = [this](TenantId tenant) {
    return log_.Subscribe(tenant, {}, [] {}).status().code() ==
           absl::StatusCode::kResourceExhausted;
  };
  auto one = Subscribe(), two = Subscribe(), three = Subscribe();
  EXPECT_TRUE(refused(kTenant)) << "three of one tenant";
  auto four = Subscribe({}, kTenant + 1), five = Subscribe({}, kTenant + 1);
  EXPECT_TRUE(refused(kTenant + 1)) << "five in all";
  two.reset();
  two = Subscribe();
}

TEST_F(KvEventLogTest, ATenantWithoutReadersGivesItsPlaceToAnother) {
  auto one = Subscribe({}, kTenant + 1), two = Subscribe({}, kTenant + 2);
  Serve();
  EXPECT_EQ(log_.Subscribe(kTenant, {}, [] {}).status().code(),
            absl::StatusCode::kResourceExhausted);
  one.reset();
  two.reset();
  auto reader = Subscribe();
  Cache(3);
  Serve();
  EXPECT_FALSE(tree_.events().Tells(kTenant + 1)) << "the one that was alone longest";
  EXPECT_TRUE(tree_.events().Tells(kTenant + 2));
  EventReplay seen;
  Read(*reader, seen);
  EXPECT_THAT(Prompts(seen), ElementsAre(3));

  // Its place goes and comes again before the scheduler has looked.
  two = Subscribe({}, kTenant + 1);
  two.reset();
  one = Subscribe({}, kTenant + 2);
  Serve();
  EXPECT_FALSE(tree_.events().Tells(kTenant + 1));
  EXPECT_TRUE(tree_.events().Tells(kTenant + 2));
}

TEST_F(KvEventLogTest, ShowsATenantItsOwnBlocksAlone) {
  Cache(1, 1, kTenant + 1);
  auto subscription = Subscribe();
  auto other = Subscribe({}, kTenant + 1);
  Serve();
  EventReplay replay;
  Read(*subscription, replay);
  EXPECT_THAT(Prompts(replay), IsEmpty());
  const uint64_t before = last_;
  Cache(2, 1, kTenant + 1);
  Serve();
  CacheAndServe(3);
  Read(*subscription, replay);
  EXPECT_EQ(last_, before + 1) << "the number shows another tenant's batches";
  EXPECT_THAT(Prompts(replay), ElementsAre(3));
}

// Readers on threads of their own come and go while the tree changes.
TEST_F(KvEventLogTest, ReadersOnTheirOwnThreadsAgreeWithTheTreeInTheEnd) {
  KvEventLog log(kBlockSize, {.max_batches = 16}, [] {});
  std::atomic<int> reading{3};
  std::vector<EventReplay> replays(3);
  std::vector<std::thread> readers;
  for (EventReplay& replay : replays) {
    readers.emplace_back([&log, &replay, &reading] {
      std::counting_semaphore<> ready(0);
      auto subscription = log.Subscribe(kTenant, {}, [&ready] { ready.release(); });
      for (int seen = 0;;) {
        const auto batch = (*subscription)->Next();
        if (!batch.ok()) {  // behind: from the beginning
          subscription->reset();
          subscription = log.Subscribe(kTenant, {}, [&ready] { ready.release(); });
          continue;
        }
        if (*batch == nullptr) {
          // The last prompt.
          const auto has_last = [](const auto& each) { return each.second.tokens[0] == 1000; };
          if (std::ranges::any_of(replay.blocks(), has_last)) break;
          ready.acquire();
          continue;
        }
        replay.Apply((*batch)->events, kBlockSize);
        if (++seen % 50 == 0) {
          subscription->reset();
          subscription = log.Subscribe(kTenant, {}, [&ready] { ready.release(); });
        }
      }
      --reading;
    });
  }
  for (int32_t i = 0; i < 1000; ++i) {
    Cache(i % 300, 1 + i % 5);
    log.Serve(tree_.events());
  }
  Cache(1000);
  while (reading > 0) {
    log.Serve(tree_.events());
    std::this_thread::yield();
  }
  for (std::thread& reader : readers) reader.join();
  for (const EventReplay& replay : replays) EXPECT_EQ(replay.blocks(), replays[0].blocks());
  EXPECT_EQ(replays[0].blocks().size(), static_cast<size_t>(pool_.num_cached()));
}

}  // namespace
}  // namespace quire

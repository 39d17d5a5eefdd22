// Tiering: the choice, order and end of copies, also with every fault at every moment.
// Covers engine/schedule/tiering/copy_tasks.cc
// Covers engine/schedule/tiering/jobs_in_flight.cc
// Covers engine/schedule/tiering/tiering_policy.cc
#include "engine/schedule/tiering/tiering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/schedule/session_world.h"

namespace quire {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class TieringTest : public testing::Test {
 protected:
  void Grow(SessionWorld& world, const SessionName& name, int32_t size, int32_t seed = 1,
            int32_t priority = 0) {
    CHECK(world.sessions.Create(0, name, {.retain_priority = priority}, world.now_ns).ok());
    CHECK(world.Converse(0, name, SomeTokens(size - 2, seed), SomeTokens(2, seed)));
    world.now_ns += 1000;
  }
  SessionInfo Get(const SessionWorld& world, const SessionName& name) {
    return world.sessions.Get(0, name).value();
  }
  // Moves the whole session to the host, off the device.
  void Offload(SessionWorld& world, const SessionName& name) {
    CHECK(world.sessions.Offload(0, name, world.now_ns).ok());
    world.Pump();
    CHECK(Get(world, name).state == SessionState::kHost);
    CHECK(Get(world, name).tiers.device_tokens == 0);
  }
};

TEST_F(TieringTest, StoresAnIdleSessionAndLaterOnlyItsNewBlocks) {
  SessionWorld world;
  Grow(world, "a", 15);  // three blocks and a tail
  const int64_t due = world.now_ns - 1000 + 2 * kSecond;
  EXPECT_EQ(world.sessions.NextTimer(), due);
  world.now_ns = due - 1;
  EXPECT_FALSE(world.Send());
  world.now_ns = due;
  ASSERT_TRUE(world.Send());
  ASSERT_EQ(world.jobs[0].job.copies.size(), 4u);
  EXPECT_EQ(world.jobs[0].job.job, 1u);
  EXPECT_EQ(Get(world, "a").state, SessionState::kOffloading);
  EXPECT_EQ(Get(world, "a").tiers.host_tokens, 0);
  EXPECT_FALSE(world.Send());
  world.Ack(0);
  EXPECT_EQ(Get(world, "a").state, SessionState::kResidentIdle);
  EXPECT_EQ(Get(world, "a").tiers.host_tokens, 14);

  ASSERT_TRUE(world.Converse(0, "a", SomeTokens(3, 2), {1, 2}));  // 19 with KV: a block, a tail
  world.now_ns += 2 * kSecond;
  ASSERT_TRUE(world.Send());
  EXPECT_EQ(world.jobs[0].job.copies.size(), 2u);
  world.Ack(0);
  EXPECT_EQ(Get(world, "a").tiers.host_tokens, 19);
  EXPECT_EQ(world.tiering.stats().stored_blocks, 6);
  EXPECT_EQ(world.tree.host().num_used_pages(), 5);
  world.CheckInvariants();
}

TEST_F(TieringTest, SavesASessionAndLeavesItOnTheDevice) {
  SessionWorld world;
  Grow(world, "a", 15);
  ASSERT_TRUE(world.sessions.Save(0, "a", world.now_ns).ok());
  EXPECT_EQ(Get(world, "a").tiers.host_tokens, 0);
  world.Pump();
  EXPECT_EQ(Get(world, "a").state, SessionState::kResidentIdle);
  EXPECT_EQ(Get(world, "a").tiers.host_tokens, 14);
  EXPECT_EQ(Get(world, "a").tiers.device_tokens, 14);
  world.CheckInvariants();
}

TEST_F(TieringTest, RestoresASessionForItsTurn) {
  SessionWorld world;
  Grow(world, "a", 15);
  Offload(world, "a");
  auto turn = world.Begin(0, "a", SomeTokens(3, 2));
  ASSERT_TRUE(turn && turn->ticket != 0);
  EXPECT_FALSE(world.Advance(*turn));
  ASSERT_TRUE(world.Send());
  EXPECT_EQ(world.jobs[0].job.direction, CopyDirection::kLoad);
  EXPECT_EQ(world.jobs[0].job.copies.size(), 4u);
  EXPECT_FALSE(world.Advance(*turn));
  world.Ack(0);
  ASSERT_TRUE(world.Advance(*turn));
  EXPECT_EQ(turn->tail_end, 14);
  world.Commit(*turn, {1, 2});
  EXPECT_EQ(Get(world, "a").tiers.absent_tokens, 1);
  EXPECT_EQ(Get(world, "a").tiers.host_tokens, 12);  // its pages are still valid
  world.CheckInvariants();
}

TEST_F(TieringTest, TwoTurnsThatShareABeginningLoadItOnce) {
  SessionWorld world;
  Grow(world, "a", 17);
  ASSERT_TRUE(world.sessions.Fork(0, "a", "b", std::nullopt, world.now_ns).ok());
  world.now_ns += 3 * kSecond;
  world.Pump();
  ASSERT_TRUE(world.sessions.Offload(0, "a", world.now_ns).ok());
  EXPECT_EQ(Get(world, "a").tiers.device_tokens, 16);  // the fork keeps them there
  ASSERT_TRUE(world.sessions.Close(0, "b").ok());
  Offload(world, "a");
  ASSERT_TRUE(world.sessions.Fork(0, "a", "b", std::nullopt, world.now_ns).ok());
  auto first = world.Begin(0, "a", SomeTokens(3, 2));
  auto second = world.Begin(0, "b", SomeTokens(3, 3));
  ASSERT_TRUE(first && second && first->ticket != 0 && second->ticket != 0);
  ASSERT_TRUE(world.Send());
  EXPECT_EQ(world.jobs[0].job.copies.size(), 4u);
  EXPECT_FALSE(world.Send());
  EXPECT_FALSE(world.Advance(*second));
  world.Ack(0);
  ASSERT_TRUE(world.Advance(*second) && world.Advance(*first));
  world.Commit(*first, {1, 2});
  world.Commit(*second, {1, 2});
  EXPECT_EQ(world.tiering.stats().loaded_blocks, 4);
  world.CheckInvariants();
}

TEST_F(TieringTest, PrefetchesOnlyAsFarAsEvictionLosesNothing) {
  SessionWorld world;
  Grow(world, "a", 25);
  Offload(world, "a");
  ASSERT_TRUE(world.pool.Reserve(world.pool.available() - 4));
  ASSERT_TRUE(world.sessions.Prefetch(0, "a", world.now_ns).ok());
  ASSERT_TRUE(world.Send());
  EXPECT_EQ(Get(world, "a").state, SessionState::kRestoring);
  EXPECT_EQ(world.jobs[0].job.copies.size(), 4u);
  world.Ack(0);
  EXPECT_EQ(Get(world, "a").tiers.device_tokens, 16);
  world.pool.Unreserve(world.pool.reserved());
  ASSERT_TRUE(world.sessions.Prefetch(0, "a", world.now_ns).ok());
  world.Pump();
  EXPECT_EQ(Get(world, "a").state, SessionState::kResidentIdle);
  world.CheckInvariants();
}

TEST_F(TieringTest, SplitsJobsByBytesAndKeepsTwoInFlightLoadsFirst) {
  WorldConfig config;
  config.tiering.block_bytes = 16 << 20;  // four to a job of 64 MiB
  SessionWorld world(config);
  Grow(world, "a", 41);  // ten blocks
  Grow(world, "b", 41, 2);
  world.now_ns += 3 * kSecond;
  ASSERT_TRUE(world.Send() && world.Send());
  EXPECT_FALSE(world.Send());
  EXPECT_EQ(world.jobs[0].job.copies.size(), 4u);
  EXPECT_TRUE(world.tiering.HasWork());
  world.Pump();
  EXPECT_EQ(world.tiering.stats().stored_blocks, 20);
  Offload(world, "a");
  Grow(world, "c", 41, 3);
  world.now_ns += 3 * kSecond;
  const auto turn = world.Begin(0, "a", {1});
  ASSERT_TRUE(turn);
  std::vector<CopyDirection> order;
  while (world.Send()) order.push_back(world.jobs.back().job.direction);
  EXPECT_EQ(order, (std::vector{CopyDirection::kLoad, CopyDirection::kLoad, CopyDirection::kStore,
                                CopyDirection::kStore}));
  world.CheckInvariants();
}

TEST_F(TieringTest, DropsPagesOfTheLowestRankFirstFromTheEnd) {
  WorldConfig config;
  config.num_pages = 12;
  SessionWorld world(config);
  Grow(world, "low", 17, 1, -1);
  Grow(world, "old", 17, 2);
  Grow(world, "high", 17, 3, 1);
  world.now_ns += 3 * kSecond;
  world.Pump();
  EXPECT_EQ(world.tree.host().num_used_pages(), 12);
  const auto host = [&](const SessionName& name) { return Get(world, name).tiers.host_tokens; };
  Grow(world, "new", 13, 4);
  world.now_ns += 3 * kSecond;
  world.Pump();
  EXPECT_EQ(host("low"), 4);
  EXPECT_EQ(host("new"), 12);
  Grow(world, "new2", 13, 5);
  world.now_ns += 3 * kSecond;
  world.Pump();
  EXPECT_EQ(host("low"), 0);
  EXPECT_EQ(host("old"), 8);
  EXPECT_EQ(host("high"), 16);
  // A session that ranks below all stored sessions is not stored.
  Grow(world, "lower", 13, 6, -2);
  world.now_ns += 3 * kSecond;
  world.Pump();
  EXPECT_EQ(host("lower"), 0);
  EXPECT_EQ(host("old"), 8);
  EXPECT_EQ(world.tiering.stats().pages_dropped, 6);
  world.CheckInvariants();
}

TEST_F(TieringTest, DropsNoPageAtWhichAHigherRankedSessionEnds) {
  WorldConfig config;
  config.num_pages = 8;
  SessionWorld world(config);
  Grow(world, "template", 17, 1, 100);
  ASSERT_TRUE(world.sessions.Fork(0, "template", "fork", std::nullopt, world.now_ns).ok());
  ASSERT_TRUE(world.sessions.Touch(0, "fork", {.retain_priority = -9}, 1).ok());
  ASSERT_TRUE(world.Converse(0, "fork", SomeTokens(8, 2), {1}));  // 6 blocks, and a tail
  world.now_ns += 3 * kSecond;
  world.Pump();
  ASSERT_EQ(world.tree.host().num_used_pages(), 7);
  Grow(world, "new", 33, 3);
  world.now_ns += 3 * kSecond;
  world.Pump();
  EXPECT_EQ(Get(world, "template").tiers.host_tokens, 16);
  EXPECT_EQ(Get(world, "fork").tiers.host_tokens, 16);
  EXPECT_EQ(Get(world, "new").tiers.host_tokens, 16);
  // The fork lost its own pages; it now ends in the template's last node.
  std::vector<BlockId> taken;
  while (world.pool.available() > 0) taken.push_back(world.pool.Take());
  for (const BlockId block : taken) world.pool.Release(block);
  Grow(world, "newer", 25, 4);
  world.now_ns += 3 * kSecond;
  world.Pump();
  EXPECT_EQ(Get(world, "template").tiers.host_tokens, 16);
  EXPECT_EQ(Get(world, "new").tiers.host_tokens, 0);
  world.CheckInvariants();
}

TEST_F(TieringTest, AStoreDoesNotBreakAReservation) {
  SessionWorld world;
  Grow(world, "a", 17);
  ASSERT_TRUE(world.pool.Reserve(world.pool.available() - 3));
  world.now_ns += 3 * kSecond;
  EXPECT_FALSE(world.Send());
  world.pool.Unreserve(1);
  world.now_ns += 4 * kSecond;
  ASSERT_TRUE(world.Send());
  EXPECT_EQ(world.pool.available(), 0);
  world.Ack(0);
  EXPECT_EQ(world.pool.available(), 4);
}

TEST_F(TieringTest, StoresUnderPressureUntilTheHighWatermark) {
  WorldConfig config;
  config.sessions.default_idle_offload_seconds = 1000;
  config.num_blocks = 101;
  SessionWorld world(config);
  for (int32_t i = 0; i < 22; ++i) Grow(world, "s" + std::to_string(i), 17, i);  // 4 blocks each
  EXPECT_FALSE(world.Send());  // 12 of 100 are free
  Grow(world, "last", 17, 100);
  world.Pump();
  // 8 were: the three longest idle make 20.
  EXPECT_EQ(world.tiering.stats().stored_blocks, 12);
  for (const char* name : {"s0", "s1", "s2"}) EXPECT_EQ(Get(world, name).tiers.host_tokens, 16);
  EXPECT_EQ(Get(world, "s3").tiers.host_tokens, 0);
  // The next blocks are evicted without a loss.
  Grow(world, "more", 41, 101);
  EXPECT_EQ(world.tree.evictions().num_kept_lost(), 0);
  for (int32_t i = 0; i < 22; ++i) {
    EXPECT_EQ(Get(world, "s" + std::to_string(i)).tiers.absent_tokens, 1) << i;
  }
  world.CheckInvariants();
}

// When the turn ends, its blocks may be evicted at once.
TEST_F(TieringTest, StoresARunningTurnUnderPressure) {
  SessionWorld world(WorldConfig{.num_blocks = 101, .num_pages = 100});
  Grow(world, "long", 342);
  auto turn = world.Begin(0, "long", SomeTokens(38, 2));
  ASSERT_TRUE(turn.has_value() && world.Advance(*turn));
  world.tiering.OnGrowth(turn->node);
  EXPECT_FALSE(world.Send());  // no pressure yet, and no idle session to store
  world.tiering.OnGrowth(turn->node);
  world.Pump();
  const int32_t depth = world.tree.Depth(turn->node);
  EXPECT_GE(depth, 94);
  EXPECT_EQ(world.tiering.stats().stored_blocks, depth);
  world.Commit(*turn, SomeTokens(1, 3));
  Grow(world, "other", 380, 5);
  EXPECT_EQ(Get(world, "long").tiers.host_tokens, depth * 4);
  EXPECT_LE(world.tree.evictions().num_kept_lost(), 1);  // the tail
  world.CheckInvariants();
}

TEST_F(TieringTest, RestoresOnlyIfExpectedToBeFastEnough) {
  SessionWorld world;
  Grow(world, "a", 41);
  Offload(world, "a");
  std::vector<int32_t> tokens = SomeTokens(39, 1);
  tokens.push_back(SomeTokens(2, 1)[0]);
  const auto pays = [&](int64_t now_ns) {
    const NodeId node = world.tree.Find(0, tokens);
    CHECK(world.tree.Depth(node) == 10);
    world.tree.Hold(node);
    const auto blocks = world.tiering.BlocksToRestore(node, 40, now_ns);
    world.tree.Release(node);
    EXPECT_EQ(blocks.value_or(10), 10);
    return blocks.has_value();
  };
  EXPECT_TRUE(pays(world.now_ns));  // no rate is measured yet
  ASSERT_TRUE(world.sessions.Prefetch(0, "a", world.now_ns).ok());
  world.Pump();  // the emulated copier takes a nanosecond a byte: 10 MiB take 10.5 ms
  Offload(world, "a");
  world.tiering.OnPrefill(1000, 1000 * 210'000);  // 40 tokens take 8.4 ms: 10.5 is over 1.2 times
  EXPECT_FALSE(pays(world.now_ns));
  // One in 16 is accepted as a probe.
  for (int32_t i = 2; i < 16; ++i) EXPECT_FALSE(pays(world.now_ns)) << i;
  EXPECT_TRUE(pays(world.now_ns));
  EXPECT_FALSE(pays(world.now_ns));
  for (int32_t i = 0; i < 20; ++i) world.tiering.OnPrefill(1000, 1000 * 230'000);
  EXPECT_TRUE(pays(world.now_ns));  // 9.2 ms
  EXPECT_EQ(world.tiering.stats().restores_declined, 16);
}

TEST(MeasuredRateTest, RecoversFromASlowPhase) {
  MeasuredRate rate;
  EXPECT_EQ(rate.PerSecond(5), 0);
  rate.Add(100, 1'000'000'000, 0);
  EXPECT_DOUBLE_EQ(rate.PerSecond(0), 100);
  for (int32_t i = 0; i < 100; ++i) rate.Add(1, 1'000'000'000, 0);
  EXPECT_NEAR(rate.PerSecond(0), 1, 1e-6);
  EXPECT_NEAR(rate.PerSecond(10 * kSecond), 50.5, 0.1);
  EXPECT_NEAR(rate.PerSecond(1000 * kSecond), 100, 0.1);
}

struct ObservedStates : SessionObserver {
  void OnSessionChange(const SessionInfo& info) override { states.push_back(info.state); }
  std::vector<SessionState> states;
};

// Computing takes 10 ms a token, so the patience for 14 tokens is 50 + 2 x 140 ms.
TEST_F(TieringTest, GivesUpARestoreThatTakesLongerThanComputing) {
  SessionWorld world;
  Grow(world, "a", 15);
  Offload(world, "a");
  world.tiering.OnPrefill(100, kSecond);
  auto turn = world.Begin(0, "a", {7});
  ASSERT_TRUE(turn.has_value() && turn->ticket != 0);
  ASSERT_TRUE(world.Send());
  const int64_t begin_ns = world.now_ns;
  EXPECT_EQ(world.tiering.NextTimer(), begin_ns + 330'000'000);
  EXPECT_FALSE(world.tiering.EndRestoreIfDone(turn->ticket, begin_ns + 329'999'999));
  EXPECT_TRUE(world.tiering.EndRestoreIfDone(turn->ticket, begin_ns + 330'000'000));
  EXPECT_EQ(world.tiering.stats().restores_late, 1);
  world.Pump();
  ASSERT_TRUE(world.Advance(*turn));
  world.Commit(*turn, {8});
  world.CheckInvariants();
}

// A request that waits for room takes the blocks of a store that takes longer than computing.
TEST_F(TieringTest, GivesUpAStoreThatTakesLongerThanComputing) {
  WorldConfig config;
  config.tiering.block_bytes = CopyJob::kMaxBytes;  // a copy a job
  SessionWorld world(config);
  Grow(world, "a", 41);
  world.tiering.OnPrefill(100, kSecond);
  CHECK(world.sessions.Offload(0, "a", world.now_ns).ok());
  ASSERT_TRUE(world.Send());
  const int32_t before = world.pool.available();
  // Ten blocks of four tokens: 50 + 2 x 400 ms.
  const int64_t due_ns = world.now_ns + 850'000'000;
  EXPECT_EQ(world.tiering.NextTimer(), due_ns);
  EXPECT_FALSE(world.tiering.GiveUpSlowStore(due_ns - 1));
  EXPECT_TRUE(world.tiering.GiveUpSlowStore(due_ns));
  EXPECT_GT(world.pool.available(), before);
  EXPECT_EQ(world.tiering.stats().stores_given_up, 1);
  world.Pump();
  world.CheckInvariants();
}

// The emulated copier takes 1.05 ms for a block of four tokens: more than 1.2 times 0.8 ms, and
// less than 1.2 times 1.2 ms.
TEST_F(TieringTest, StoresNothingUnderPressureThatIsQuickerToCompute) {
  for (const int64_t token_ns : {200'000, 300'000}) {
    WorldConfig config;
    config.sessions.default_idle_offload_seconds = 1000;
    config.num_blocks = 101;
    SessionWorld world(config);
    Grow(world, "first", 17, 99);
    Offload(world, "first");  // measures the copier
    world.tiering.OnPrefill(1000, 1000 * token_ns);
    for (int32_t i = 0; i < 23; ++i) Grow(world, "s" + std::to_string(i), 17, i);
    EXPECT_EQ(world.Send(), token_ns == 300'000) << token_ns;
  }
}

TEST_F(TieringTest, UsesOnlyPagesThatAreReady) {
  SessionWorld world;
  world.tree.host().Withhold();
  Grow(world, "a", 15);  // three blocks and a tail
  world.now_ns += 2 * kSecond;
  EXPECT_FALSE(world.Send());
  EXPECT_LE(world.tiering.NextTimer(), world.now_ns + kSecond);
  world.tree.host().Provide(3);
  ASSERT_TRUE(world.Send());
  ASSERT_EQ(world.jobs[0].job.copies.size(), 3u);
  for (const BlockCopy& copy : world.jobs[0].job.copies) EXPECT_LT(copy.page, 3);
  world.Ack(0);
  EXPECT_FALSE(world.Send());
  EXPECT_EQ(Get(world, "a").tiers.host_tokens, 12);
  // Pages that are still to come cost no session the pages it has.
  Grow(world, "b", 15, 2, /*priority=*/5);
  world.now_ns += 2 * kSecond;
  EXPECT_FALSE(world.Send());
  EXPECT_EQ(world.tiering.stats().pages_dropped, 0);
  world.tree.host().Provide(1000);  // more than there are
  world.Pump();
  EXPECT_EQ(Get(world, "a").tiers.host_tokens, 14);
  EXPECT_EQ(Get(world, "b").tiers.host_tokens, 14);
  EXPECT_EQ(world.tree.host().num_ready_pages(), world.tree.host().num_pages());
  EXPECT_EQ(world.tree.host().num_used_pages(), 8);
  world.CheckInvariants();
}

TEST_F(TieringTest, ASessionIsToldWhenItsBlocksAreEvictedOrTheDeviceIsLost) {
  ObservedStates observer;
  SessionWorld world;
  Grow(world, "a", 15);
  ASSERT_TRUE(world.sessions.Save(0, "a", world.now_ns).ok());
  world.Pump();
  world.sessions.SetObserver(&observer);
  const auto states_after_looking = [&] {
    for (int32_t i = 0; i < 3; ++i) world.sessions.Expire(world.now_ns += kSecond / 10, 1);
    return std::exchange(observer.states, {});
  };
  EXPECT_EQ(states_after_looking(), std::vector<SessionState>{});

  std::vector<BlockId> taken;
  while (world.pool.available() > 0) taken.push_back(world.pool.Take());
  EXPECT_EQ(states_after_looking(), std::vector<SessionState>{SessionState::kHost});
  for (const BlockId block : taken) world.pool.Release(block);

  ASSERT_TRUE(world.sessions.Prefetch(0, "a", world.now_ns).ok());
  world.Pump();
  states_after_looking();
  EXPECT_EQ(Get(world, "a").state, SessionState::kResidentIdle);
  world.LoseDevice();
  EXPECT_EQ(states_after_looking(), std::vector<SessionState>{SessionState::kHost});
  EXPECT_EQ(states_after_looking(), std::vector<SessionState>{});
}

// --- Faults.

TEST_F(TieringTest, ALateJobKeepsItsBlocksAndPagesUntilItsAck) {
  SessionWorld world;
  Grow(world, "a", 17);
  Offload(world, "a");
  auto turn = world.Begin(0, "a", SomeTokens(3, 2));
  ASSERT_TRUE(turn && world.Send());
  const int64_t deadline = world.now_ns + 10 * kSecond;
  EXPECT_EQ(world.tiering.NextTimer(), deadline);
  world.now_ns = deadline - 1;
  EXPECT_FALSE(world.Advance(*turn));
  world.now_ns = deadline;
  EXPECT_FALSE(world.Send());
  EXPECT_EQ(world.tiering.stats().late_jobs, 1);
  ASSERT_TRUE(world.Advance(*turn));  // computed from the beginning
  EXPECT_EQ(turn->found, 20);
  world.Commit(*turn, {1, 2});
  EXPECT_EQ(world.tiering.NextTimer(), kNoDeadline);
  // Takes every available block: none of them is the job's.
  std::vector<BlockId> taken;
  while (world.pool.available() > 0) taken.push_back(world.pool.Take());
  for (const BlockCopy& copy : world.jobs[0].job.copies) {
    EXPECT_EQ(std::count(taken.begin(), taken.end(), copy.block), 0);
  }
  world.Ack(0);
  EXPECT_EQ(world.pool.available(), 4);
  for (const BlockId block : taken) world.pool.Release(block);
  world.CheckInvariants();
}

TEST_F(TieringTest, SendsNoFurtherCopiesOfLateOrAbandonedTasks) {
  WorldConfig config;
  config.tiering.block_bytes = 16 << 20;  // four to a job
  SessionWorld world(config);
  Grow(world, "a", 49);  // twelve blocks
  Offload(world, "a");
  ASSERT_TRUE(world.sessions.Prefetch(0, "a", world.now_ns).ok());
  ASSERT_TRUE(world.Send() && world.Send());
  EXPECT_EQ(world.pool.num_free(), world.pool.total() - 12);
  world.now_ns += 10 * kSecond;
  EXPECT_FALSE(world.Send());
  EXPECT_EQ(world.pool.num_free(), world.pool.total() - 8);
  world.Ack(0);
  EXPECT_FALSE(world.Send());
  world.Ack(0);
  EXPECT_EQ(Get(world, "a").tiers.device_tokens, 32);
  Offload(world, "a");

  auto turn = world.Begin(0, "a", {1});
  ASSERT_TRUE(turn && world.Send());
  world.Abort(*turn);
  EXPECT_FALSE(world.Send());
  EXPECT_EQ(world.pool.num_free(), world.pool.total() - 4);
  world.Ack(0);
  EXPECT_FALSE(world.tiering.HasWork());
  world.CheckInvariants();
}

TEST_F(TieringTest, RestoresTheChainBeforeABadPage) {
  for (int32_t good = 0; good < 4; ++good) {
    SessionWorld world;
    Grow(world, "a", 17);
    Offload(world, "a");
    auto turn = world.Begin(0, "a", SomeTokens(3, 2));
    ASSERT_TRUE(turn && world.Send());
    world.Ack(0, CopyStatus::kCorrupt, good);
    ASSERT_TRUE(world.tiering.EndRestoreIfDone(turn->ticket, world.now_ns));
    ASSERT_TRUE(world.Advance(*turn));
    world.Commit(*turn, {1, 2});
    EXPECT_EQ(Get(world, "a").tiers.absent_tokens, 1);
    EXPECT_EQ(Get(world, "a").tiers.host_tokens, 4 * good);
    EXPECT_EQ(world.tiering.stats().corrupt_pages, 1);
    world.CheckInvariants();
  }
}

TEST_F(TieringTest, RetriesAFailedStoreAfterLongerAndLongerPauses) {
  SessionWorld world;
  Grow(world, "a", 17);
  std::vector<int64_t> pauses;
  for (int32_t i = 0; i < 4; ++i) {
    const int64_t due = world.sessions.NextTimer();
    pauses.push_back((due - world.now_ns) / kSecond);
    world.now_ns = due;
    ASSERT_TRUE(world.Send());
    world.Ack(0, CopyStatus::kFailed);
    // The looks around after the report end.
    for (int32_t look = 0; look < 10; ++look)
      world.sessions.Expire(world.now_ns + look * 1000000, 1);
  }
  EXPECT_EQ(pauses, (std::vector<int64_t>{1, 4, 8, 16}));
  world.now_ns = world.sessions.NextTimer();
  world.Pump();
  EXPECT_EQ(Get(world, "a").tiers.host_tokens, 16);
}

// A restore of ten blocks in three jobs, at most two of them in flight. `disturb` is called at
// every moment: before and after each sending and each ack.
void DisturbARestore(CopyStatus status,
                     const std::function<void(SessionWorld&, WorldTurn&)>& disturb) {
  for (int32_t moment = 0; moment < 8; ++moment) {
    SCOPED_TRACE("moment " + std::to_string(moment));
    WorldConfig config;
    config.tiering.block_bytes = 16 << 20;
    SessionWorld world(config);
    CHECK(world.sessions.Create(0, "a", {}, world.now_ns).ok());
    CHECK(world.Converse(0, "a", SomeTokens(40, 1), {7}));
    CHECK(world.sessions.Offload(0, "a", world.now_ns).ok());
    world.Pump();
    auto turn = world.Begin(0, "a", SomeTokens(3, 2));
    CHECK(turn && turn->ticket != 0);
    const std::function<void()> events[] = {
        [&] { world.Send(); },
        [&] { world.Send(); },
        [&] {
          if (world.jobs.size() > 1) world.Execute(1);
        },
        [&] {
          if (world.jobs.size() > 1) world.Ack(1, status, 2);
        },
        [&] { world.Send(); },
        [&] {
          if (!world.jobs.empty()) world.Ack(0);
        },
        [&] {
          if (!world.jobs.empty()) world.Ack(0);
        },
    };
    for (int32_t i = 0; i < 7; ++i) {
      if (i == moment) disturb(world, *turn);
      world.CheckInvariants();
      events[i]();
      world.CheckInvariants();
    }
    if (moment == 7) disturb(world, *turn);
    world.Pump();
    if (turn->turn != 0) {
      ASSERT_TRUE(world.Advance(*turn));
      world.Commit(*turn, {5, 6});
    }
    world.CheckInvariants();
    // All holds have ended, and the session continues correctly.
    EXPECT_EQ(world.pool.num_free() + world.pool.num_cached(), world.pool.total());
    EXPECT_FALSE(world.tiering.HasWork());
    ASSERT_TRUE(world.Converse(0, "a", SomeTokens(5, 3), {8}));
    EXPECT_EQ(world.sessions.Get(0, "a")->tiers.absent_tokens, 1);
    world.CheckInvariants();
  }
}

TEST_F(TieringTest, ARestoreMayBeAbandonedAtAnyMoment) {
  for (const CopyStatus status : {CopyStatus::kOk, CopyStatus::kFailed, CopyStatus::kCorrupt}) {
    DisturbARestore(status, [](SessionWorld& world, WorldTurn& turn) { world.Abort(turn); });
  }
}

TEST_F(TieringTest, TheDeviceMayBeLostAtAnyMomentOfARestore) {
  DisturbARestore(CopyStatus::kOk, [](SessionWorld& world, WorldTurn& turn) {
    world.Abort(turn);
    world.LoseDevice();
    EXPECT_EQ(world.sessions.Get(0, "a")->state, SessionState::kHost);
    CHECK(world.sessions.Prefetch(0, "a", world.now_ns).ok() && world.Send());
    EXPECT_EQ(world.jobs[0].job.job, 1u);  // numbers restart with new workers
    EXPECT_EQ(world.sessions.Get(0, "a")->tiers.host_tokens, 40);
  });
}

TEST_F(TieringTest, ARestoreMayBeLateAtAnyMoment) {
  for (const CopyStatus status : {CopyStatus::kOk, CopyStatus::kFailed, CopyStatus::kCorrupt}) {
    DisturbARestore(status, [](SessionWorld& world, WorldTurn& turn) {
      world.now_ns += 11 * kSecond;
      ASSERT_TRUE(world.Advance(turn));
      world.Commit(turn, {5, 6});
    });
  }
}

// A store of ten blocks in three jobs, at most two in flight, disturbed at every moment.
void DisturbAStore(CopyStatus status, const std::function<void(SessionWorld&)>& disturb) {
  for (int32_t moment = 0; moment < 8; ++moment) {
    SCOPED_TRACE("moment " + std::to_string(moment));
    WorldConfig config;
    config.tiering.block_bytes = 16 << 20;
    SessionWorld world(config);
    CHECK(world.sessions.Create(0, "a", {}, world.now_ns).ok());
    CHECK(world.Converse(0, "a", SomeTokens(38, 1), {7}));
    CHECK(world.sessions.Offload(0, "a", world.now_ns).ok());
    const std::function<void()> events[] = {
        [&] { world.Send(); },
        [&] { world.Send(); },
        [&] {
          if (world.jobs.size() > 1) world.Execute(1);
        },
        [&] {
          if (world.jobs.size() > 1) world.Ack(1, status, 2);
        },
        [&] { world.Send(); },
        [&] {
          if (!world.jobs.empty()) world.Ack(0, status);
        },
        [&] {
          if (!world.jobs.empty()) world.Ack(0);
        },
    };
    for (int32_t i = 0; i < 7; ++i) {
      if (i == moment) disturb(world);
      world.CheckInvariants();
      events[i]();
      world.CheckInvariants();
    }
    if (moment == 7) disturb(world);
    world.now_ns += 100 * kSecond;
    world.Pump();
    world.CheckInvariants();
    EXPECT_EQ(world.pool.num_free() + world.pool.num_cached(), world.pool.total());
    EXPECT_FALSE(world.tiering.HasWork());
    if (!world.sessions.Get(0, "a").ok()) {
      EXPECT_EQ(world.tree.host().num_free_pages(), world.tree.host().num_pages());
      continue;
    }
    ASSERT_TRUE(world.Converse(0, "a", SomeTokens(5, 3), {8}));
    EXPECT_EQ(world.sessions.Get(0, "a")->tiers.absent_tokens, 1);
  }
}

TEST_F(TieringTest, AStoreMayBeDisturbedAtAnyMoment) {
  const std::function<void(SessionWorld&)> disturbances[] = {
      [](SessionWorld&) {},
      [](SessionWorld& world) { ASSERT_TRUE(world.sessions.Close(0, "a").ok()); },
      [](SessionWorld& world) {
        ASSERT_TRUE(world.Converse(0, "a", SomeTokens(6, 4), {1, 2}));
      },
      [](SessionWorld& world) { ASSERT_TRUE(world.sessions.Truncate(0, "a", 17, 1).ok()); },
      [](SessionWorld& world) { ASSERT_TRUE(world.sessions.Truncate(0, "a", 0, 1).ok()); },
      [](SessionWorld& world) {
        ASSERT_TRUE(world.sessions.Fork(0, "a", "b", 20, world.now_ns).ok());
        ASSERT_TRUE(world.sessions.Close(0, "a").ok());
        ASSERT_TRUE(world.Converse(0, "b", SomeTokens(3, 1), {1, 2}));
        ASSERT_TRUE(world.sessions.Close(0, "b").ok());
      },
      [](SessionWorld& world) { world.now_ns += 11 * kSecond; },
      [](SessionWorld& world) { world.LoseDevice(); },
  };
  for (const auto& disturb : disturbances) {
    for (const CopyStatus status : {CopyStatus::kOk, CopyStatus::kFailed}) {
      DisturbAStore(status, disturb);
    }
  }
}

TEST_F(TieringTest, ExportsNoPageThatIsNotFilledYet) {
  WorldConfig config;
  config.tiering.block_bytes = 16 << 20;  // four to a job
  SessionWorld world(config);
  Grow(world, "a", 33);  // eight blocks
  world.now_ns += 3 * kSecond;
  ASSERT_TRUE(world.Send() && world.Send());
  world.Ack(1);
  EXPECT_EQ(Get(world, "a").state, SessionState::kOffloading);
  const auto early = world.sessions.BeginExport(0, "a", world.now_ns);
  EXPECT_EQ(early->kv_tokens, 0);
  world.sessions.AbortTurn(early->turn, world.now_ns);
  world.Ack(0);
  const auto bytes = world.sessions.BeginExport(0, "a", world.now_ns);
  EXPECT_EQ(bytes->kv_tokens, 32);
  world.CheckPages(0, bytes->tokens, 32, bytes->pages);
}

TEST_F(TieringTest, IgnoresAcksOfUnknownJobs) {
  SessionWorld world;
  world.tiering.OnAck({.job = 5}, 1);
  Grow(world, "a", 17);
  world.now_ns += 3 * kSecond;
  ASSERT_TRUE(world.Send());
  world.Ack(0);
  world.tiering.OnAck({.job = 1, .status = CopyStatus::kFailed}, world.now_ns);
  EXPECT_EQ(Get(world, "a").tiers.host_tokens, 16);
  EXPECT_EQ(world.tiering.stats().failed_jobs, 0);
}

// --- Many sessions.

TEST_F(TieringTest, TenThousandSessionsShareAPoolForFifty) {
  constexpr int32_t kSessions = 10'000;
  WorldConfig config;
  config.num_blocks = 50 * 4 + 1;
  config.num_pages = kSessions * 4;
  config.sessions.max_sessions = config.sessions.max_sessions_per_tenant = kSessions;
  config.sessions.default_ttl_seconds = config.sessions.max_ttl_seconds = 1e6;
  SessionWorld world(config);
  for (int32_t i = 0; i < kSessions; ++i) {
    Grow(world, "s" + std::to_string(i), 15, i);
    world.now_ns += kSecond / 4;
    world.sessions.Expire(world.now_ns, 1);
    world.Pump();
  }
  world.now_ns += 3 * kSecond;
  world.Pump();
  EXPECT_EQ(world.tree.evictions().num_kept_lost(), 0);
  EXPECT_EQ(world.tiering.stats().stored_blocks, 4 * kSessions);
  for (int32_t i = 0; i < kSessions - 60; ++i) {  // the newest ones are still on the device
    const std::string name = "s" + std::to_string(i);
    ASSERT_EQ(Get(world, name).state, SessionState::kHost);
    ASSERT_TRUE(world.Converse(0, name, SomeTokens(1, i), {1}));
    ASSERT_EQ(Get(world, name).tiers.absent_tokens, 1);
    world.now_ns += kSecond / 4;
    world.Pump();
  }
  EXPECT_GE(world.tiering.stats().loaded_blocks, 4 * (kSessions - 60));
  world.CheckInvariants();
}

// Counts the sessions and nodes that a few calls of every kind examine beside `num_idle` idle ones.
int64_t WorkAmong(int32_t num_idle) {
  WorldConfig config;
  config.num_blocks = 4001;
  config.num_pages = 2000;
  config.sessions.max_sessions = config.sessions.max_sessions_per_tenant = num_idle + 10;
  config.sessions.default_ttl_seconds = config.sessions.max_ttl_seconds = 1e6;
  SessionWorld world(config);
  SessionStore& store = world.sessions;
  for (int32_t i = 0; i < num_idle; ++i) {
    const std::string name = "idle" + std::to_string(i);
    CHECK(store.Create(1, name, {}, world.now_ns).ok());
    CHECK(world.Converse(1, name, SomeTokens(9, i % 100), SomeTokens(5, i)));
    world.now_ns += 100'000'000;
    store.Expire(world.now_ns, 1);
    world.Pump();
  }
  // Failed stores are retried a few times, after longer and longer pauses.
  for (int32_t i = 0; i < 30; ++i) {
    world.now_ns += 1000 * kSecond;
    store.Expire(world.now_ns, 1);
    world.Pump();
  }
  const int64_t before = store.work();
  CHECK(store.Create(0, "a", {}, world.now_ns).ok());
  for (int32_t turn = 0; turn < 10; ++turn) {
    CHECK(world.Converse(0, "a", SomeTokens(5, turn), {1, 2}));
    world.now_ns += 3 * kSecond;
    store.Expire(world.now_ns, 10);
    store.NextTimer();
    world.Pump();
    CHECK(store.Get(0, "a")->tiers.host_tokens == store.Get(0, "a")->position - 1);
    CHECK(store.Offload(0, "a", world.now_ns).ok());
    CHECK(store.Fork(0, "a", "b", std::nullopt, world.now_ns).ok());
    CHECK(store.Truncate(0, "b", 3, world.now_ns).ok());
    CHECK(store.Prefetch(0, "a", world.now_ns).ok());
    world.Pump();
    CHECK(store.Close(0, "b").ok());
  }
  CHECK(store.List(1, "idle5", 10).size() == 10);
  return store.work() - before;
}

TEST_F(TieringTest, WorkIsIndependentOfTheNumberOfIdleSessions) {
  const int64_t few = WorkAmong(2000);
  const int64_t many = WorkAmong(10'000);
  // Each of the 10 rounds over all sessions examines at most 64 nodes and a session per call.
  EXPECT_LE(many, few + 500) << few;
  EXPECT_LE(many, 10 * 64 + 4000);
}

}  // namespace
}  // namespace quire

// Snapshots and recalls beside everything else that happens to a session: the pages of a snapshot
// keep their bytes without holding anything, and a recalled session has its KV as if it never left.
#include "engine/schedule/sessions/session_snapshots.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/schedule/session_world.h"

namespace quire {
namespace {

constexpr TenantId kTenant = 7;

WorldConfig Pages(int32_t num_pages) {
  WorldConfig config;
  config.num_pages = num_pages;
  return config;
}

class SnapshotTest : public testing::Test {
 protected:
  // A session of `size` tokens whose KV is on the host, the last token's aside.
  void Grow(SessionWorld& world, const SessionName& name, int32_t size, int32_t seed) {
    ASSERT_TRUE(world.sessions.Create(kTenant, name, {}, world.now_ns).ok());
    ASSERT_TRUE(world.Converse(kTenant, name, SomeTokens(size - 2, seed), SomeTokens(2, seed)));
    world.now_ns += 3'000'000'000;
    world.Pump();
    ASSERT_EQ(Tiers(world, name).host_tokens, size - 1);
  }
  SessionTiers Tiers(SessionWorld& world, const SessionName& name) {
    return world.sessions.Get(kTenant, name)->tiers;
  }
};

TEST_F(SnapshotTest, TheSessionIsNotBusyAndNoBlockIsHeld) {
  SessionWorld world;
  Grow(world, "a", 15, 1);
  const int32_t available = world.pool.available();
  const SessionTransfer bytes = world.sessions.snapshots().Begin(kTenant, "a", true);
  EXPECT_EQ(bytes.tokens.size(), 15u);
  EXPECT_EQ(bytes.kv_tokens, 14);
  ASSERT_EQ(bytes.pages.size(), 4u);
  EXPECT_EQ(world.pool.available(), available);
  EXPECT_FALSE(world.tree.Held(world.tree.Find(kTenant, bytes.tokens)));
  // A turn takes the tail over, and the snapshot still has its page.
  ASSERT_TRUE(world.Converse(kTenant, "a", SomeTokens(5, 2), SomeTokens(3, 3)));
  world.CheckPages(kTenant, bytes.tokens, bytes.kv_tokens, bytes.pages);
  world.CheckInvariants();
  world.sessions.snapshots().End(bytes.turn);
  world.sessions.snapshots().End(bytes.turn);
  world.CheckInvariants();
}

TEST_F(SnapshotTest, PagesKeepTheirBytesWhenTheSessionEnds) {
  SessionWorld world(Pages(8));
  Grow(world, "a", 17, 1);
  const SessionTransfer bytes = world.sessions.snapshots().Begin(kTenant, "a", true);
  ASSERT_EQ(bytes.pages.size(), 4u);
  ASSERT_TRUE(world.sessions.Close(kTenant, "a").ok());
  EXPECT_EQ(world.tree.host().num_free_pages(), 4);
  // Another session wants all pages, and gets those that are not read.
  ASSERT_TRUE(world.sessions.Create(kTenant, "b", {}, world.now_ns).ok());
  ASSERT_TRUE(world.Converse(kTenant, "b", SomeTokens(31, 9), SomeTokens(2, 9)));
  world.now_ns += 3'000'000'000;
  world.Pump();
  world.CheckPages(kTenant, bytes.tokens, bytes.kv_tokens, bytes.pages);
  EXPECT_EQ(Tiers(world, "b").host_tokens, 16);
  world.CheckInvariants();
  world.sessions.snapshots().End(bytes.turn);
  EXPECT_EQ(world.tree.host().num_free_pages(), 4);
  world.CheckInvariants();
}

TEST_F(SnapshotTest, PagesThatAreReadAreNotDropped) {
  SessionWorld world(Pages(4));
  Grow(world, "a", 17, 1);
  const SessionTransfer bytes = world.sessions.snapshots().Begin(kTenant, "a", true);
  ASSERT_TRUE(world.sessions.Create(kTenant, "other", {}, world.now_ns).ok());
  ASSERT_TRUE(world.Converse(kTenant, "other", SomeTokens(15, 2), SomeTokens(3, 3)));
  world.now_ns += 3'000'000'000;
  world.Pump();
  EXPECT_EQ(Tiers(world, "a").host_tokens, 16);
  world.CheckPages(kTenant, bytes.tokens, bytes.kv_tokens, bytes.pages);
  world.sessions.snapshots().End(bytes.turn);
  world.now_ns += 600'000'000'000;
  world.Pump();
  EXPECT_LT(Tiers(world, "a").host_tokens, 16) << "the longer unused loses its pages again";
  world.CheckInvariants();
}

TEST_F(SnapshotTest, TokensAloneNeedNoEnd) {
  SessionWorld world;
  Grow(world, "a", 15, 1);
  const SessionTransfer bytes = world.sessions.snapshots().Begin(kTenant, "a", false);
  EXPECT_EQ(bytes.tokens.size(), 15u);
  EXPECT_TRUE(bytes.pages.empty());
  ASSERT_TRUE(world.sessions.Close(kTenant, "a").ok());
  EXPECT_EQ(world.tree.host().num_free_pages(), world.tree.host().num_pages());
}

class RecallTest : public SnapshotTest {
 protected:
  // A session as an earlier server left it.
  std::vector<int32_t> Adopt(SessionWorld& world, const SessionName& name, int32_t size) {
    const std::vector<int32_t> tokens = SomeTokens(size, 1);
    const auto info =
        world.sessions.Adopt(kTenant, name,
                             {.options = {.ttl_seconds = 600, .idle_offload_after_seconds = 2},
                              .tokens = tokens,
                              .turns = 3,
                              .created_ns = -5,
                              .used_ns = world.now_ns - 1'000'000'000});
    CHECK(info.ok());
    EXPECT_EQ(info->position, size);
    EXPECT_EQ(info->turns, 3u);
    EXPECT_EQ(info->state, SessionState::kDropped);
    EXPECT_EQ(info->expires_ns, world.now_ns + 599'000'000'000);
    return tokens;
  }
};

TEST_F(RecallTest, AnAdoptedSessionGetsItsKvBack) {
  SessionWorld world;
  const std::vector<int32_t> tokens = Adopt(world, "a", 15);
  SessionSnapshots& snapshots = world.sessions.snapshots();
  const auto start = snapshots.BeginRecall(kTenant, "a", std::span(tokens).first(14), world.now_ns);
  ASSERT_TRUE(start.ok());
  EXPECT_EQ(start->kv_tokens, 14);
  ASSERT_EQ(start->pages.size(), 4u);
  EXPECT_EQ(std::ranges::count(start->pages, kNoPage), 0);
  // No sequence reads a page before the recall has ended.
  EXPECT_EQ(Tiers(world, "a").host_tokens, 0);
  world.FillPages(kTenant, tokens, start->pages);
  snapshots.EndRecall(start->turn, true);
  EXPECT_EQ(Tiers(world, "a").host_tokens, 14);
  world.CheckInvariants();
  const auto turn = world.Begin(kTenant, "a", SomeTokens(3, 4));
  ASSERT_TRUE(turn.has_value());
  EXPECT_NE(turn->ticket, 0u) << "the turn restores it";
}

TEST_F(RecallTest, OnlyTheTokensInFrontOfADifferenceComeBack) {
  SessionWorld world;
  std::vector<int32_t> tokens = Adopt(world, "a", 15);
  const std::vector<int32_t> own = tokens;
  tokens[10] += 1;
  SessionSnapshots& snapshots = world.sessions.snapshots();
  const auto start = snapshots.BeginRecall(kTenant, "a", tokens, world.now_ns);
  EXPECT_EQ(start->kv_tokens, 10);
  ASSERT_EQ(start->pages.size(), 3u);
  world.FillPages(kTenant, own, start->pages);
  snapshots.EndRecall(start->turn, true);
  EXPECT_EQ(Tiers(world, "a").host_tokens, 10);
  world.CheckInvariants();
}

TEST_F(RecallTest, AnIncompleteRecallLeavesNothing) {
  SessionWorld world;
  const std::vector<int32_t> tokens = Adopt(world, "a", 15);
  SessionSnapshots& snapshots = world.sessions.snapshots();
  const auto start = snapshots.BeginRecall(kTenant, "a", tokens, world.now_ns);
  snapshots.EndRecall(start->turn, false);
  EXPECT_EQ(Tiers(world, "a").host_tokens, 0);
  EXPECT_EQ(world.tree.host().num_free_pages(), world.tree.host().num_pages());
  world.CheckInvariants();
  EXPECT_EQ(snapshots.BeginRecall(kTenant, "b", tokens, 1).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(RecallTest, AFullHostMakesRoom) {
  SessionWorld world(Pages(4));
  Grow(world, "old", 17, 9);
  world.now_ns += 1'000'000'000;
  const std::vector<int32_t> tokens = Adopt(world, "a", 15);
  SessionSnapshots& snapshots = world.sessions.snapshots();
  const auto start = snapshots.BeginRecall(kTenant, "a", std::span(tokens).first(14), world.now_ns);
  EXPECT_EQ(std::ranges::count(start->pages, kNoPage), 0);
  world.FillPages(kTenant, tokens, start->pages);
  snapshots.EndRecall(start->turn, true);
  EXPECT_EQ(Tiers(world, "a").host_tokens, 14);
  EXPECT_EQ(Tiers(world, "old").host_tokens, 0);
  world.CheckInvariants();
}

TEST_F(RecallTest, ASessionThatEndsMeanwhileKeepsNothing) {
  SessionWorld world;
  const std::vector<int32_t> tokens = Adopt(world, "a", 15);
  SessionSnapshots& snapshots = world.sessions.snapshots();
  const auto start = snapshots.BeginRecall(kTenant, "a", tokens, world.now_ns);
  world.FillPages(kTenant, tokens, start->pages);
  ASSERT_TRUE(world.sessions.Close(kTenant, "a").ok());
  snapshots.EndRecall(start->turn, true);
  world.CheckInvariants();
  EXPECT_EQ(world.tree.host().num_free_pages(), world.tree.host().num_pages());
}

}  // namespace
}  // namespace quire

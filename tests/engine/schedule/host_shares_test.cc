// A tenant's bound of host memory: its own pages make room, or its KV is not stored, and no other
// tenant loses anything.
#include "engine/schedule/kv/host_shares.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/schedule/sessions/session_snapshots.h"
#include "tests/engine/schedule/session_world.h"

namespace quire {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr TenantId kBound = 7;
constexpr TenantId kOther = 8;

class HostSharesTest : public testing::Test {
 protected:
  // A session with KV of four blocks of its own.
  void Grow(TenantId tenant, const SessionName& name, int32_t seed, int32_t priority = 0) {
    CHECK(world_.sessions.Create(tenant, name, {.retain_priority = priority}, world_.now_ns).ok());
    CHECK(world_.Converse(tenant, name, SomeTokens(15, seed), SomeTokens(2, seed)));
    world_.now_ns += 1000;
  }
  // Idle sessions are stored, as far as there is room.
  void Store() {
    world_.now_ns += 3 * kSecond;
    world_.Pump();
    world_.CheckInvariants();
  }
  int64_t Host(TenantId tenant, const SessionName& name) {
    return world_.sessions.Get(tenant, name)->tiers.host_tokens;
  }
  // The account's count, which must be that of the nodes.
  int64_t Pages(TenantId tenant) {
    const AccountId account = world_.accounts.Open(tenant);
    const int64_t pages = world_.accounts[account].host_pages;
    world_.accounts.Close(account);
    EXPECT_EQ(pages, world_.CountPages(tenant));
    return pages;
  }
  // Of four tokens each, in a chain of their own: KV that no session wants, with pages.
  void Cache(TenantId tenant, int32_t blocks, int32_t seed) {
    const std::string name = "cache" + std::to_string(seed);
    CHECK(world_.sessions.Create(tenant, name, {}, world_.now_ns).ok());
    CHECK(world_.Converse(tenant, name, SomeTokens(4 * blocks, seed), {1}));
    Store();
    CHECK(world_.sessions.Close(tenant, name).ok());
  }

  SessionWorld world_;
};

TEST_F(HostSharesTest, CountsThePagesOfEachTenant) {
  Grow(kBound, "a", 1);
  Grow(kOther, "a", 1);
  Grow(kOther, "b", 2);
  Store();
  EXPECT_EQ(Pages(kBound), 4);
  EXPECT_EQ(Pages(kOther), 8);
  std::vector<TenantStats> figures;
  world_.accounts.TakeChanges(figures);
  int64_t told = 0;
  for (const TenantStats& stats : figures) {
    EXPECT_EQ(stats.host_pages, world_.CountPages(stats.tenant));
    told += stats.host_pages;
  }
  EXPECT_EQ(told, 12);
  // Pages of a session that is gone still have its KV, until they are reused.
  ASSERT_TRUE(world_.sessions.Close(kBound, "a").ok());
  EXPECT_EQ(Pages(kBound), 4);
  world_.tree.Flush({});
  EXPECT_EQ(Pages(kBound), 0);
  EXPECT_EQ(Pages(kOther), 8);
}

TEST_F(HostSharesTest, PagesThatNoSessionWantsGoFirstTheLongestUnusedOfTheTenantsOwn) {
  Cache(kOther, 3, 10);  // longer unused than any of the bounded tenant
  Cache(kBound, 2, 11);
  Cache(kBound, 2, 12);
  world_.SetPages(kBound, 6);
  ASSERT_EQ(Pages(kBound), 4);
  Grow(kBound, "a", 1);
  Store();
  EXPECT_EQ(Host(kBound, "a"), 16);
  EXPECT_EQ(Pages(kBound), 6);
  EXPECT_EQ(Pages(kOther), 3);
  // Of the two that were spare, the older one has gone.
  const auto on_host = [&](int32_t seed) {
    const std::vector<int32_t> tokens = SomeTokens(8, seed);
    int32_t count = 0;
    for (NodeId id = world_.tree.Find(kBound, tokens); world_.tree.Depth(id) > 0;
         id = world_.tree.Parent(id)) {
      count += world_.tree.Kv(id).on_host();
    }
    return count;
  };
  EXPECT_EQ(on_host(11), 0);
  EXPECT_EQ(on_host(12), 2);
  // Host memory has free pages all the time.
  EXPECT_EQ(world_.tree.host().num_free_pages(), 64 - 4);
  EXPECT_EQ(world_.tiering.stats().pages_dropped, 0);
}

TEST_F(HostSharesTest, SessionsDisplaceThoseOfTheirTenantByRankAndNoOthers) {
  world_.SetPages(kBound, 8);
  Grow(kOther, "oldest", 9, -5);
  Grow(kBound, "low", 1, -1);
  Grow(kBound, "high", 2, 1);
  Store();
  EXPECT_EQ(Pages(kBound), 8);
  Grow(kBound, "new", 3);
  Store();
  EXPECT_EQ(Host(kBound, "low"), 0);
  EXPECT_EQ(Host(kBound, "high"), 16);
  EXPECT_EQ(Host(kBound, "new"), 16);
  EXPECT_EQ(Host(kOther, "oldest"), 16);
  EXPECT_EQ(world_.tiering.stats().pages_dropped, 4);
  // One that ranks below all others of its tenant is not stored, and loses nothing by that: its KV
  // is on the device.
  Grow(kBound, "lower", 4, -2);
  Store();
  EXPECT_EQ(Host(kBound, "lower"), 0);
  EXPECT_EQ(world_.sessions.Get(kBound, "lower")->state, SessionState::kResidentIdle);
  EXPECT_EQ(Pages(kBound), 8);
  EXPECT_EQ(Host(kOther, "oldest"), 16);
  // It can be evicted, and its next turn computes it again.
  std::vector<BlockId> taken;
  while (world_.pool.available() > 0) taken.push_back(world_.pool.Take());
  for (const BlockId block : taken) world_.pool.Release(block);
  EXPECT_EQ(world_.sessions.Get(kBound, "lower")->state, SessionState::kDropped);
  ASSERT_TRUE(world_.Converse(kBound, "lower", SomeTokens(3, 5), {6}));
  EXPECT_EQ(world_.sessions.Get(kBound, "lower")->tiers.absent_tokens, 1);
  world_.CheckInvariants();
}

TEST_F(HostSharesTest, ALoweredLimitFreesSparePagesAtOnceAndOthersAtTheNextStores) {
  Cache(kBound, 3, 10);
  Grow(kBound, "old", 1);
  Store();
  Grow(kBound, "a", 2);
  Store();
  Grow(kOther, "a", 3);
  Cache(kOther, 3, 11);
  ASSERT_EQ(Pages(kBound), 11);
  world_.SetPages(kBound, 9);
  EXPECT_EQ(Pages(kBound), 9);
  world_.SetPages(kBound, 5);
  EXPECT_EQ(Pages(kBound), 8);  // sessions want these
  EXPECT_EQ(Host(kBound, "old") + Host(kBound, "a"), 32);
  EXPECT_EQ(Pages(kOther), 7);
  world_.CheckInvariants();
  Grow(kBound, "new", 4);
  Store();
  EXPECT_EQ(Pages(kBound), 5);
  EXPECT_EQ(Host(kBound, "new"), 16);
  EXPECT_EQ(Host(kBound, "old"), 0);
  EXPECT_EQ(Host(kBound, "a"), 4);
  EXPECT_EQ(Pages(kOther), 7);
  // Raised again, it takes pages as they come.
  world_.SetPages(kBound, 0);
  ASSERT_TRUE(world_.sessions.Save(kBound, "old", world_.now_ns).ok());
  world_.Pump();
  EXPECT_EQ(Host(kBound, "old"), 16);
}

TEST_F(HostSharesTest, APageThatIsCopiedStaysWhenTheLimitIsLowered) {
  Grow(kBound, "a", 1);
  world_.now_ns += 3 * kSecond;
  ASSERT_TRUE(world_.Send());
  EXPECT_EQ(Pages(kBound), 4);
  world_.SetPages(kBound, 1);
  EXPECT_EQ(Pages(kBound), 4);
  world_.Ack(0);
  EXPECT_EQ(Host(kBound, "a"), 16);
  world_.CheckInvariants();
}

TEST_F(HostSharesTest, APageThatIsReadCountsUntilTheReadingEnds) {
  Grow(kBound, "a", 1);
  Store();
  SessionSnapshots& snapshots = world_.sessions.snapshots();
  const SessionTransfer bytes = snapshots.Begin(kBound, "a", true);
  ASSERT_EQ(bytes.pages.size(), 4u);
  ASSERT_TRUE(world_.sessions.Close(kBound, "a").ok());
  world_.tree.Flush({});
  EXPECT_EQ(world_.CountPages(kBound), 0);
  const AccountId account = world_.accounts.Open(kBound);
  EXPECT_EQ(world_.accounts[account].host_pages, 4);
  world_.accounts.Close(account);
  world_.SetPages(kBound, 6);
  // Two pages are left to it, although 60 are free.
  Grow(kBound, "b", 2);
  Store();
  EXPECT_EQ(Host(kBound, "b"), 8);
  world_.CheckPages(kBound, bytes.tokens, bytes.kv_tokens, bytes.pages);
  snapshots.End(bytes.turn);
  EXPECT_EQ(Pages(kBound), 2);
  world_.CheckInvariants();
}

TEST_F(HostSharesTest, NoOtherTenantGetsTheAccountOfOneWithPages) {
  Grow(kBound, "a", 1);
  Store();
  const SessionTransfer bytes = world_.sessions.snapshots().Begin(kBound, "a", true);
  ASSERT_TRUE(world_.sessions.Close(kBound, "a").ok());
  world_.tree.Flush({});
  // Tenants come and go; their roots and idle accounts are forgotten.
  for (TenantId tenant = 100; tenant < 5000; ++tenant) world_.tree.Find(tenant, {});
  EXPECT_LT(world_.accounts.size(), TenantAccounts::kMaxIdle + 100u);
  const AccountId account = world_.accounts.Open(kBound);
  EXPECT_EQ(world_.accounts[account].host_pages, 4);
  world_.accounts.Close(account);
  world_.CheckInvariants();
  world_.accounts.CheckInvariants();
  world_.sessions.snapshots().End(bytes.turn);
  world_.CheckInvariants();
}

TEST_F(HostSharesTest, AnImportTakesWhatTheBoundLeaves) {
  Cache(kOther, 3, 10);
  Grow(kBound, "a", 1);
  Store();
  world_.SetPages(kBound, 7);
  const std::vector<int32_t> tokens = SomeTokens(18, 2);
  const auto start = world_.sessions.BeginImport(
      kBound, {.name = "b", .options = {.retain_priority = -3}, .tokens = tokens, .kv_tokens = 18},
      world_.now_ns);
  ASSERT_TRUE(start.ok());
  ASSERT_EQ(start->pages.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(start->pages[i] != kNoPage, i < 3) << i;
  world_.FillPages(kBound, tokens, start->pages);
  const auto info = world_.sessions.EndImport(start->turn, true, world_.now_ns);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->position, 18);
  EXPECT_EQ(info->tiers.host_tokens, 12);
  EXPECT_EQ(Host(kBound, "a"), 16);
  EXPECT_EQ(Pages(kBound), 7);
  // One that ranks higher has room made for it, by its tenant alone.
  const auto high = world_.sessions.BeginImport(
      kBound,
      {.name = "c", .options = {.retain_priority = 1}, .tokens = SomeTokens(8, 3), .kv_tokens = 8},
      world_.now_ns);
  ASSERT_TRUE(high.ok());
  EXPECT_NE(high->pages[1], kNoPage);
  EXPECT_FALSE(world_.sessions.EndImport(high->turn, false, world_.now_ns).ok());
  EXPECT_EQ(Host(kBound, "b"), 4);
  EXPECT_EQ(Pages(kOther), 3);
  world_.CheckInvariants();
}

TEST_F(HostSharesTest, ARecallTakesWhatTheBoundLeaves) {
  Grow(kBound, "a", 1);
  world_.SetPages(kBound, 2);
  const auto info = world_.sessions.Get(kBound, "a");
  ASSERT_TRUE(info.ok());
  std::vector<int32_t> tokens = SomeTokens(15, 1);
  SessionSnapshots& snapshots = world_.sessions.snapshots();
  const auto start = snapshots.BeginRecall(kBound, "a", tokens, world_.now_ns);
  ASSERT_TRUE(start.ok());
  ASSERT_EQ(start->pages.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(start->pages[i] != kNoPage, i < 2) << i;
  world_.FillPages(kBound, tokens, start->pages);
  snapshots.EndRecall(start->turn, true);
  EXPECT_EQ(Pages(kBound), 2);
  world_.CheckInvariants();
}

TEST_F(HostSharesTest, ALimitBelowOneBlockStoresNothing) {
  TenantTable table;
  table.tenants = {{kBound, {.max_host_kv_tokens = 3}}};
  world_.accounts.SetTable(table);
  Grow(kBound, "a", 1);
  Grow(kOther, "a", 1);
  ASSERT_TRUE(world_.sessions.Offload(kBound, "a", world_.now_ns).ok());
  Store();
  EXPECT_EQ(Pages(kBound), 0);
  EXPECT_EQ(Host(kOther, "a"), 16);
  EXPECT_EQ(world_.sessions.Get(kBound, "a")->state, SessionState::kResidentIdle);
  ASSERT_TRUE(world_.Converse(kBound, "a", SomeTokens(3, 2), {1}));
  EXPECT_FALSE(world_.tiering.HasWork());
}

// Sessions of a tenant at its bound are the longest unused on the device. Those of another tenant
// are stored under pressure all the same, before they would be lost.
TEST_F(HostSharesTest, ATenantAtItsBoundHoldsUpNoOtherTenantsStoresUnderPressure) {
  WorldConfig config;
  config.sessions.default_idle_offload_seconds = 1000;
  config.num_blocks = 101;
  config.num_pages = 200;
  SessionWorld world(config);
  TenantTable table;
  table.tenants = {{kBound, {.max_host_kv_tokens = 3}}};  // not one block
  world.accounts.SetTable(table);
  const auto grow = [&](TenantId tenant, const std::string& name, int32_t seed) {
    CHECK(world.sessions.Create(tenant, name, {}, world.now_ns).ok());
    CHECK(world.Converse(tenant, name, SomeTokens(15, seed), {1, 2}));
    world.now_ns += 1000;
  };
  for (int32_t i = 0; i < 21; ++i) grow(kBound, "b" + std::to_string(i), i);
  const NodeId oldest = world.tree.evictions().OldestUnsaved();
  for (int32_t i = 0; i < 2; ++i) grow(kOther, "o" + std::to_string(i), 100 + i);
  // 8 of 100 blocks are free, fewer than a tenth: pressure until 20 can be had.
  world.Pump();
  EXPECT_EQ(world.CountPages(kBound), 0);
  EXPECT_EQ(world.CountPages(kOther), 8);
  EXPECT_EQ(world.tiering.stats().pages_dropped, 0);
  // The tries changed nothing in the order of eviction: this block is still the first to be lost.
  EXPECT_EQ(world.tree.evictions().OldestUnsaved(), oldest);
  // Only the bounded tenant's blocks are left, and the next try is when its pause has ended.
  EXPECT_GT(world.tiering.NextTimer(), world.now_ns);
  EXPECT_LE(world.tiering.NextTimer(), world.now_ns + kSecond / 10);
  EXPECT_FALSE(world.Send());
  table.tenants.clear();
  world.accounts.SetTable(table);
  EXPECT_FALSE(world.Send());
  world.now_ns = world.tiering.NextTimer();
  world.Pump();
  EXPECT_EQ(world.CountPages(kBound), 4);
  EXPECT_EQ(world.sessions.Get(kBound, "b0")->tiers.host_tokens, 16);
  world.CheckInvariants();
}

// Under pressure the KV of running turns and of preempted sequences is stored at once.
TEST_F(HostSharesTest, RunningTurnsOfATenantAtItsBoundBeginNoStores) {
  WorldConfig config;
  config.num_blocks = 101;
  config.num_pages = 100;
  SessionWorld world(config);
  world.SetPages(kBound, 1);
  for (const TenantId tenant : {kBound, kOther}) {
    CHECK(world.sessions.Create(tenant, "s", {}, world.now_ns).ok());
    CHECK(world.Converse(tenant, "s", SomeTokens(170, 1), {1, 2}));
  }
  world.now_ns += 3 * kSecond;
  world.Pump();
  ASSERT_EQ(world.CountPages(kBound), 1);
  auto bound = world.Begin(kBound, "s", SomeTokens(16, 2));
  auto other = world.Begin(kOther, "s", SomeTokens(16, 2));
  ASSERT_TRUE(bound && world.Advance(*bound) && other && world.Advance(*other));
  world.Pump();
  ASSERT_EQ(world.CountPages(kBound), 1);
  const int64_t stored = world.tiering.stats().stored_blocks;
  world.tiering.OnGrowth(bound->node);
  world.tiering.OnPreempt(bound->node);
  EXPECT_FALSE(world.tiering.HasWork());
  world.tiering.OnGrowth(other->node);
  EXPECT_TRUE(world.tiering.HasWork());
  world.Pump();
  EXPECT_GT(world.tiering.stats().stored_blocks, stored);
  EXPECT_EQ(world.CountPages(kBound), 1);
  world.Commit(*bound, {1});
  world.Commit(*other, {1});
  world.CheckInvariants();
}

}  // namespace
}  // namespace quire

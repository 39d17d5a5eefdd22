// Sessions as clients use them, turn by turn: answers, refusals, leases, forks, cuts, pins, bytes.
// Covers engine/schedule/sessions/session_records.cc, engine/schedule/sessions/session_leases.cc,
// engine/schedule/sessions/session_pressure.cc, engine/schedule/sessions/session_transfers.cc,
// engine/schedule/sessions/host_filling.cc
#include "engine/schedule/sessions/session_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "tests/engine/schedule/session_world.h"

namespace quire {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr TenantId kTenant = 7;

std::string Reason(const absl::Status& status) {
  const auto payload = status.GetPayload("quire.session/reason");
  return payload ? std::string(*payload) : "";
}

template <typename T>
std::string Reason(const absl::StatusOr<T>& result) {
  return Reason(result.status());
}

class Observer : public SessionObserver {
 public:
  explicit Observer(std::function<void(const SessionInfo&)> hear) : hear_(std::move(hear)) {}
  void OnSessionChange(const SessionInfo& info) override { hear_(info); }

 private:
  const std::function<void(const SessionInfo&)> hear_;
};

class SessionStoreTest : public testing::Test {
 protected:
  SessionInfo Create(const SessionName& name, const SessionOptions& options = {}) {
    const auto info = store().Create(kTenant, name, options, world_.now_ns);
    CHECK(info.ok());
    return *info;
  }
  SessionInfo Get(const SessionName& name) { return store().Get(kTenant, name).value(); }
  // A session of `size` tokens, all KV there but the last one's.
  void Grow(const SessionName& name, int32_t size, int32_t seed = 1) {
    Create(name);
    CHECK(world_.Converse(kTenant, name, SomeTokens(size - 2, seed), SomeTokens(2, seed)));
  }
  std::vector<int32_t> Tokens(const SessionName& name) {
    const auto turn = store().BeginTurn(kTenant, name, std::nullopt, world_.now_ns);
    const std::span<const int32_t> tokens = store().TokensOf(*turn);
    const std::vector<int32_t> copy(tokens.begin(), tokens.end());
    store().AbortTurn(*turn, world_.now_ns);
    return copy;
  }
  SessionStore& store() { return world_.sessions; }

  SessionWorld world_;
};

TEST_F(SessionStoreTest, ReturnsTheOptionsItWasCreatedWith) {
  const SessionInfo info = Create("a", {.ttl_seconds = 60, .retain_priority = -3});
  EXPECT_EQ(info.name, "a");
  EXPECT_EQ(info.tenant, kTenant);
  EXPECT_EQ(info.position, 0);
  EXPECT_EQ(info.options.ttl_seconds, 60);
  EXPECT_EQ(info.options.idle_offload_after_seconds, 2);
  EXPECT_EQ(info.options.retain_priority, -3);
  EXPECT_EQ(info.expires_ns, world_.now_ns + 60 * kSecond);
  EXPECT_EQ(Create("b").options.ttl_seconds, 1000);
}

TEST_F(SessionStoreTest, RefusesInvalidNamesAndOptions) {
  const auto refused = [this](const SessionName& name, const SessionOptions& options) {
    return store().Create(kTenant, name, options, 1).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused("", {}));
  EXPECT_TRUE(refused("with space", {}));
  EXPECT_TRUE(refused(std::string(129, 'a'), {}));
  EXPECT_TRUE(refused("a", {.ttl_seconds = -1}));
  EXPECT_TRUE(refused("a", {.ttl_seconds = 10'001}));
  EXPECT_TRUE(refused("a", {.ttl_seconds = std::nan("")}));
  EXPECT_TRUE(refused("a", {.idle_offload_after_seconds = 86'401}));
  EXPECT_TRUE(refused("a", {.idle_offload_after_seconds = std::nan("")}));
  EXPECT_TRUE(refused("a", {.retain_priority = 101}));
  EXPECT_TRUE(refused("a", {.retain_priority = std::numeric_limits<int32_t>::min()}));
  EXPECT_EQ(store().num_sessions(), 0);
  Create(std::string(128, 'a'));
}

TEST_F(SessionStoreTest, HidesSessionsFromOtherTenants) {
  Grow("a", 9);
  EXPECT_EQ(Reason(store().Get(8, "a")), "SESSION_NOT_FOUND");
  EXPECT_EQ(store().Close(8, "a").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Reason(store().BeginTurn(8, "a", std::nullopt, 1)), "SESSION_NOT_FOUND");
  EXPECT_TRUE(store().List(8, "", 10).empty());
  ASSERT_TRUE(store().Create(8, "a", {}, 1).ok());
  EXPECT_EQ(store().Get(8, "a")->position, 0);
  EXPECT_EQ(Get("a").position, 9);
}

TEST_F(SessionStoreTest, ListsPagesInTheOrderOfNames) {
  for (const char* name : {"d", "a", "c", "b"}) Create(name);
  ASSERT_TRUE(store().Create(8, "bb", {}, 1).ok());
  const auto first = store().List(kTenant, "", 3);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0].name + first[1].name + first[2].name, "abc");
  const auto second = store().List(kTenant, "c", 3);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].name, "d");
}

TEST_F(SessionStoreTest, RefusesASecondTurnAndChangesDuringATurn) {
  Grow("a", 9);
  const auto turn = store().BeginTurn(kTenant, "a", 9, world_.now_ns);
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(store().TokensOf(*turn).size(), 9u);
  EXPECT_EQ(Get("a").state, SessionState::kActive);
  const int64_t now = world_.now_ns;
  EXPECT_EQ(Reason(store().BeginTurn(kTenant, "a", 9, now)), "SESSION_BUSY");
  EXPECT_EQ(Reason(store().Fork(kTenant, "a", "b", std::nullopt, now)), "SESSION_BUSY");
  EXPECT_EQ(Reason(store().Truncate(kTenant, "a", 1, now)), "SESSION_BUSY");
  EXPECT_EQ(Reason(store().Offload(kTenant, "a", now)), "SESSION_BUSY");
  EXPECT_EQ(Reason(store().BeginExport(kTenant, "a", now)), "SESSION_BUSY");
  EXPECT_EQ(Reason(store().Close(kTenant, "a")), "SESSION_BUSY");
  store().AbortTurn(*turn, now);
  store().AbortTurn(*turn, now);
  store().CommitTurn(*turn, {1, 2, 3}, kNoNode, now);  // it has ended
  EXPECT_EQ(Get("a").position, 9);
  EXPECT_EQ(Get("a").turns, 1u);
  EXPECT_TRUE(store().Close(kTenant, "a").ok());
}

TEST_F(SessionStoreTest, NamesTheTruePositionWhenItRefusesAnother) {
  Grow("a", 9);
  const auto wrong = store().BeginTurn(kTenant, "a", 8, world_.now_ns);
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Reason(wrong), "WRONG_POSITION");
  EXPECT_NE(std::string(wrong.status().message()).find("at position 9, not at 8"),
            std::string::npos);
  EXPECT_TRUE(store().BeginTurn(kTenant, "a", 9, world_.now_ns).ok());
}

TEST_F(SessionStoreTest, RefusesChangesOverAQuota) {
  WorldConfig config;
  config.sessions.max_sessions = 3;
  config.sessions.max_sessions_per_tenant = 2;
  config.sessions.max_session_tokens = 20;
  config.sessions.max_model_len = 12;
  SessionWorld world(config);
  SessionStore& store = world.sessions;
  ASSERT_TRUE(store.Create(1, "a", {}, 1).ok());
  ASSERT_TRUE(world.Converse(1, "a", SomeTokens(10, 1), {1, 2}));
  EXPECT_EQ(Reason(store.BeginTurn(1, "a", 12, 1)), "SESSION_FULL");
  EXPECT_EQ(Reason(store.Fork(1, "a", "b", 9, 1)), "TOO_MANY_SESSION_TOKENS");
  ASSERT_TRUE(store.Fork(1, "a", "b", 8, 1).ok());
  EXPECT_EQ(Reason(store.BeginTurn(1, "b", 8, 1)), "TOO_MANY_SESSION_TOKENS");
  EXPECT_EQ(Reason(store.Create(1, "c", {}, 1)), "TOO_MANY_SESSIONS");
  ASSERT_TRUE(store.Create(2, "c", {}, 1).ok());
  EXPECT_EQ(Reason(store.Create(3, "d", {}, 1)), "TOO_MANY_SESSIONS");
  EXPECT_EQ(Reason(store.Create(2, "c", {}, 1)), "SESSION_EXISTS");
  ASSERT_TRUE(store.Close(1, "a").ok());
  EXPECT_TRUE(store.BeginTurn(1, "b", 8, 1).ok());
}

TEST_F(SessionStoreTest, EndsWhenItsLeaseRunsOutUnlessATurnRuns) {
  std::vector<std::string> closed;
  Observer observer([&](const SessionInfo& info) {
    if (info.state == SessionState::kClosed) closed.push_back(info.name);
  });
  store().SetObserver(&observer);
  const int64_t start = world_.now_ns;
  Create("short", {.ttl_seconds = 10});
  Create("busy", {.ttl_seconds = 10});
  Create("touched", {.ttl_seconds = 10});
  const auto turn = store().BeginTurn(kTenant, "busy", 0, start);
  EXPECT_EQ(store().NextTimer(), start + 10 * kSecond);
  ASSERT_TRUE(store().Touch(kTenant, "touched", {}, start + 5 * kSecond).ok());
  store().Expire(start + 10 * kSecond - 1, 10);
  EXPECT_TRUE(closed.empty());
  store().Expire(start + 10 * kSecond, 10);
  EXPECT_EQ(closed, std::vector<std::string>{"short"});
  store().AbortTurn(*turn, start + 14 * kSecond);
  store().Expire(start + 15 * kSecond, 10);
  EXPECT_EQ(closed, (std::vector<std::string>{"short", "touched"}));
  store().Expire(start + 24 * kSecond, 10);
  EXPECT_EQ(store().num_sessions(), 0);
}

TEST_F(SessionStoreTest, TouchChangesOnlyGivenOptions) {
  Create("a", {.ttl_seconds = 10, .idle_offload_after_seconds = 3, .retain_priority = 5});
  const auto touched = store().Touch(kTenant, "a", {.ttl_seconds = 50}, 2 * kSecond);
  ASSERT_TRUE(touched.ok());
  EXPECT_EQ(touched->expires_ns, 52 * kSecond);
  EXPECT_EQ(touched->options.idle_offload_after_seconds, 3);
  EXPECT_EQ(touched->options.retain_priority, 5);
  EXPECT_FALSE(store().Touch(kTenant, "a", {.ttl_seconds = -2}, 3).ok());
  EXPECT_EQ(Get("a").options.ttl_seconds, 50);
}

// --- Tokens and their KV.

TEST_F(SessionStoreTest, KeepsTheKvOfATurnForTheNext) {
  Grow("a", 15);
  const SessionInfo info = Get("a");
  EXPECT_EQ(info.state, SessionState::kResidentIdle);
  EXPECT_EQ(info.tiers.device_tokens, 14);
  EXPECT_EQ(info.tiers.host_tokens, 0);
  EXPECT_EQ(info.tiers.absent_tokens, 1);
  auto turn = world_.Begin(kTenant, "a", SomeTokens(3, 2));
  ASSERT_TRUE(turn && turn->ticket == 0);
  EXPECT_EQ(store().TokensOf(turn->turn).size(), 15u);
  ASSERT_TRUE(world_.Advance(*turn));
  EXPECT_EQ(turn->tail_end, 14);  // three blocks and a tail of two
  world_.Abort(*turn);
  EXPECT_EQ(Get("a").position, 15);
  EXPECT_EQ(Get("a").tiers.device_tokens, 15);  // the turn's block has the tail, and more
  EXPECT_EQ(Get("a").state, SessionState::kResidentIdle);
}

TEST_F(SessionStoreTest, ForksShareBlocksAndDiverge) {
  Grow("a", 15);
  const int32_t available = world_.pool.num_cached();
  const auto fork = store().Fork(kTenant, "a", "b", std::nullopt, world_.now_ns);
  ASSERT_TRUE(fork.ok());
  EXPECT_EQ(fork->position, 15);
  EXPECT_EQ(fork->tiers.device_tokens, 14);
  EXPECT_EQ(fork->state, SessionState::kResidentIdle);
  EXPECT_EQ(world_.pool.num_cached(), available);
  EXPECT_EQ(Tokens("b"), Tokens("a"));
  EXPECT_EQ(store().Fork(kTenant, "a", "c", 11, world_.now_ns)->tiers.device_tokens, 11);
  EXPECT_EQ(store().Fork(kTenant, "a", "d", 0, world_.now_ns)->position, 0);
  EXPECT_EQ(Reason(store().Fork(kTenant, "a", "e", 16, 1)), "POSITION_BEYOND_END");
  EXPECT_EQ(Reason(store().Fork(kTenant, "a", "e", -1, 1)), "POSITION_BEYOND_END");
  EXPECT_EQ(Reason(store().Fork(kTenant, "a", "b", 1, 1)), "SESSION_EXISTS");
  ASSERT_TRUE(world_.Converse(kTenant, "b", SomeTokens(5, 8), {3}));
  EXPECT_EQ(Get("a").tiers.device_tokens, 14);
  ASSERT_TRUE(store().Close(kTenant, "a").ok());
  EXPECT_EQ(Get("b").position, 21);
  EXPECT_EQ(Get("b").tiers.absent_tokens, 1);
  world_.CheckInvariants();
}

TEST_F(SessionStoreTest, ACutKeepsItsPartlyFilledBlock) {
  const auto device_tokens = [this](int32_t position) {
    const SessionName name = "s" + std::to_string(position);
    Grow(name, 16, 5);  // three blocks and a tail of three
    const auto info = store().Truncate(kTenant, name, position, world_.now_ns);
    CHECK(info.ok() && info->position == position);
    // The remaining KV is valid, and so is the KV that a turn adds.
    CHECK(world_.Converse(kTenant, name, SomeTokens(6, position), {1, 2}));
    CHECK(Get(name).position == position + 8);
    world_.CheckInvariants();
    return info->tiers.device_tokens;
  };
  EXPECT_EQ(device_tokens(16), 15);
  EXPECT_EQ(device_tokens(15), 15);
  EXPECT_EQ(device_tokens(14), 14);
  EXPECT_EQ(device_tokens(13), 13);
  EXPECT_EQ(device_tokens(12), 12);
  EXPECT_EQ(device_tokens(11), 11);
  EXPECT_EQ(device_tokens(8), 8);
  EXPECT_EQ(device_tokens(3), 3);
  EXPECT_EQ(device_tokens(0), 0);
  EXPECT_EQ(Reason(store().Truncate(kTenant, "s0", 9, 1)), "POSITION_BEYOND_END");
}

TEST_F(SessionStoreTest, SaysWhenItsKvIsLost) {
  std::vector<SessionState> states;
  Grow("a", 15);
  Observer observer([&](const SessionInfo& info) { states.push_back(info.state); });
  store().SetObserver(&observer);
  // Another holder takes every block.
  std::vector<BlockId> taken;
  while (world_.pool.available() > 0) taken.push_back(world_.pool.Take());
  EXPECT_EQ(Get("a").tiers.absent_tokens, 15);
  EXPECT_EQ(Get("a").state, SessionState::kDropped);
  store().Expire(world_.now_ns, 1);
  EXPECT_EQ(states, std::vector<SessionState>{SessionState::kDropped});
  EXPECT_EQ(store().CountByState()[static_cast<size_t>(SessionState::kDropped)], 1);
  for (const BlockId block : taken) world_.pool.Release(block);
  EXPECT_EQ(Tokens("a").size(), 15u);
}

// --- Pins.

TEST_F(SessionStoreTest, APinKeepsBlocksFromEvictionAndGrowsWithTheSession) {
  Grow("a", 15);
  Grow("b", 15, 2);
  ASSERT_TRUE(store().Pin(kTenant, "a", 1)->pinned);
  ASSERT_TRUE(world_.Converse(kTenant, "a", SomeTokens(5, 3), {1, 2}));
  std::vector<BlockId> taken;
  while (world_.pool.available() > 0) taken.push_back(world_.pool.Take());
  EXPECT_EQ(Get("a").tiers.device_tokens, 21);
  EXPECT_EQ(Get("b").tiers.device_tokens, 0);
  ASSERT_FALSE(store().Unpin(kTenant, "a", 1)->pinned);
  while (world_.pool.available() > 0) taken.push_back(world_.pool.Take());
  EXPECT_EQ(Get("a").tiers.device_tokens, 0);
  for (const BlockId block : taken) world_.pool.Release(block);
  world_.CheckInvariants();
}

TEST_F(SessionStoreTest, ATurnTakesTheTailOfAPinnedSession) {
  Grow("a", 15);
  ASSERT_TRUE(store().Pin(kTenant, "a", 1).ok());
  auto turn = world_.Begin(kTenant, "a", SomeTokens(3, 2));
  ASSERT_TRUE(turn && world_.Advance(*turn));
  EXPECT_EQ(turn->tail_end, 14);
  world_.Abort(*turn);
  world_.CheckInvariants();
}

TEST_F(SessionStoreTest, PinsCountEachBlockOnceAgainstTheQuota) {
  // A quarter of 64 blocks: 16.
  Grow("a", 41);  // 10 blocks
  ASSERT_TRUE(store().Fork(kTenant, "a", "b", std::nullopt, 1).ok());
  Grow("c", 29, 2);  // 7 blocks
  Grow("d", 25, 3);  // 6
  ASSERT_TRUE(store().Pin(kTenant, "a", 1).ok());
  ASSERT_TRUE(store().Pin(kTenant, "b", 1).ok());
  EXPECT_EQ(Reason(store().Pin(kTenant, "c", 1)), "PIN_QUOTA");
  ASSERT_TRUE(store().Pin(kTenant, "d", 1).ok());
  world_.CheckInvariants();
  ASSERT_TRUE(store().Unpin(kTenant, "a", 1).ok());
  EXPECT_EQ(Reason(store().Pin(kTenant, "c", 1)), "PIN_QUOTA");
  ASSERT_TRUE(store().Close(kTenant, "b").ok());
  ASSERT_TRUE(store().Pin(kTenant, "c", 1).ok());
  // A turn is never refused because of a pin: blocks over the quota are not pinned.
  ASSERT_TRUE(world_.Converse(kTenant, "c", SomeTokens(60, 3), {1, 2}));
  EXPECT_TRUE(Get("c").pinned);
  world_.CheckInvariants();
}

TEST_F(SessionStoreTest, APinDoesNotBreakAReservation) {
  Grow("a", 15);
  ASSERT_TRUE(world_.pool.Reserve(world_.pool.available() - 1));
  EXPECT_EQ(Reason(store().Pin(kTenant, "a", 1)), "PIN_QUOTA");
  EXPECT_FALSE(Get("a").pinned);
  world_.pool.Unreserve(world_.pool.reserved());
  EXPECT_TRUE(store().Pin(kTenant, "a", 1).ok());
  // The blocks that a turn releases at its end do not break it either.
  const auto turn = store().BeginTurn(kTenant, "a", 15, 1);
  ASSERT_TRUE(world_.pool.Reserve(world_.pool.available()));
  store().AbortTurn(*turn, 1);
  EXPECT_EQ(world_.pool.available(), 0);
  EXPECT_TRUE(Get("a").pinned);
  world_.CheckInvariants();
}

// --- Sessions as bytes.

TEST_F(SessionStoreTest, IsExportedAndImportedPageByPage) {
  Grow("a", 15);
  world_.now_ns += 3 * kSecond;
  world_.Pump();
  ASSERT_EQ(Get("a").tiers.host_tokens, 14);
  const auto bytes = store().BeginExport(kTenant, "a", world_.now_ns);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->kv_tokens, 14);
  ASSERT_EQ(bytes->pages.size(), 4u);
  EXPECT_EQ(bytes->tokens.size(), 15u);

  SessionStore::Import import{.name = "b", .tokens = bytes->tokens, .kv_tokens = 14};
  const auto start = store().BeginImport(8, import, world_.now_ns);
  ASSERT_TRUE(start.ok());
  ASSERT_EQ(start->pages.size(), 4u);
  for (const PageId page : start->pages) EXPECT_NE(page, kNoPage);
  EXPECT_EQ(Reason(store().BeginTurn(8, "b", 15, 1)), "SESSION_BUSY");
  world_.CheckInvariants();
  const auto info = store().EndImport(start->turn, true, world_.now_ns);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->position, 15);
  EXPECT_EQ(info->tiers.host_tokens, 14);
  EXPECT_EQ(info->state, SessionState::kHost);
  EXPECT_EQ(store().EndImport(start->turn, true, 1).status().code(), absl::StatusCode::kNotFound);

  store().AbortTurn(bytes->turn, world_.now_ns);
  EXPECT_EQ(Get("a").state, SessionState::kResidentIdle);
  // KV that is there already is not sent twice, and an abandoned import leaves nothing.
  import.name = "c";
  const auto again = store().BeginImport(8, import, world_.now_ns);
  EXPECT_EQ(again->pages[0], kNoPage);
  EXPECT_NE(again->pages[3], kNoPage);  // a tail is its session's own
  EXPECT_FALSE(store().EndImport(again->turn, false, world_.now_ns).ok());
  EXPECT_EQ(Reason(store().Get(8, "c")), "SESSION_NOT_FOUND");
  world_.CheckInvariants();
}

// The file has the tokens of the export's begin; the session has those that the client got.
TEST_F(SessionStoreTest, ACutThatComesDuringAnExportIsMadeAtItsEnd) {
  for (const bool with_kv : {true, false}) {
    const SessionName name = with_kv ? "a" : "b";
    const RequestId request = with_kv ? 7 : 8;
    with_kv ? Grow(name, 15) : void(Create(name));
    if (with_kv) world_.Pump();
    const int32_t before = Get(name).position;
    const auto turn = store().BeginTurn(kTenant, name, before, 1, request);
    std::vector<int32_t> tokens(store().TokensOf(*turn).begin(), store().TokensOf(*turn).end());
    tokens.resize(static_cast<size_t>(before) + 10, 5);
    store().CommitTurn(*turn, tokens, store().KeptBy(*turn), 2, before + 4);
    const auto bytes = store().BeginExport(kTenant, name, 3);
    EXPECT_EQ(bytes->tokens.size(), tokens.size());
    store().CutTurn(request, 2, 4);
    EXPECT_EQ(Get(name).position, before + 10);
    store().AbortTurn(bytes->turn, 5);
    EXPECT_EQ(Get(name).position, before + 6);
    world_.CheckInvariants();
    // The cut of a turn behind it is its own.
    const auto next = store().BeginTurn(kTenant, name, before + 6, 6, request + 10);
    store().CutTurn(request, 0, 7);
    EXPECT_EQ(store().MaxOutput(*next), kKeepAll);
    store().AbortTurn(*next, 8);
    EXPECT_EQ(Get(name).position, before + 6);
  }
}

// Neither does an export end the time in which a cut of the turn in front of it can come.
TEST_F(SessionStoreTest, ACutBehindAnExportIsMade) {
  Create("a");
  const auto turn = store().BeginTurn(kTenant, "a", 0, 1, 7);
  store().CommitTurn(*turn, SomeTokens(10, 1), kNoNode, 2, 4);
  store().AbortTurn(store().BeginExport(kTenant, "a", 3)->turn, 4);
  EXPECT_EQ(Get("a").position, 10);
  store().CutTurn(7, 2, 5);
  EXPECT_EQ(Get("a").position, 6);
}

// A fork shares the nodes, and its restore may find one of their pages corrupt.
TEST_F(SessionStoreTest, AnExportsPagesGoToNoOtherTenantWhenOneIsCorrupt) {
  WorldConfig config;
  config.num_pages = 8;
  SessionWorld world(config);
  SessionStore& sessions = world.sessions;
  ASSERT_TRUE(sessions.Create(kTenant, "a", {}, world.now_ns).ok());
  ASSERT_TRUE(world.Converse(kTenant, "a", SomeTokens(15, 1), SomeTokens(2, 1)));
  world.now_ns += 3 * kSecond;
  world.Pump();
  ASSERT_EQ(sessions.Get(kTenant, "a")->tiers.host_tokens, 16);
  ASSERT_TRUE(sessions.Fork(kTenant, "a", "fork", std::nullopt, world.now_ns).ok());
  world.LoseDevice();
  const auto bytes = sessions.BeginExport(kTenant, "a", world.now_ns);
  ASSERT_EQ(bytes->pages.size(), 4u);
  auto turn = world.Begin(kTenant, "fork", SomeTokens(3, 2));
  ASSERT_TRUE(turn.has_value() && turn->ticket != 0);
  while (world.Send()) continue;
  while (!world.jobs.empty()) world.Ack(0, CopyStatus::kCorrupt);
  world.Abort(*turn);
  EXPECT_EQ(sessions.Get(kTenant, "fork")->tiers.host_tokens, 0);
  // Another tenant wants all pages, and gets those that are not read.
  ASSERT_TRUE(sessions.Create(8, "b", {}, world.now_ns).ok());
  ASSERT_TRUE(world.Converse(8, "b", SomeTokens(31, 9), SomeTokens(2, 9)));
  world.now_ns += 3 * kSecond;
  world.Pump();
  EXPECT_EQ(sessions.Get(8, "b")->tiers.host_tokens, 16);
  world.CheckPages(kTenant, bytes->tokens, bytes->kv_tokens, bytes->pages);
  world.CheckInvariants();
  sessions.AbortTurn(bytes->turn, world.now_ns);
  EXPECT_EQ(world.tree.host().num_free_pages(), 4);
  world.CheckInvariants();
}

TEST_F(SessionStoreTest, ImportsTokensWhereThereIsNoRoomForKv) {
  WorldConfig config;
  config.num_pages = 2;
  SessionWorld world(config);
  const std::vector<int32_t> tokens = SomeTokens(20, 1);
  const auto start =
      world.sessions.BeginImport(1, {.name = "a", .tokens = tokens, .kv_tokens = 19}, 1);
  ASSERT_TRUE(start.ok());
  ASSERT_EQ(start->pages.size(), 5u);
  EXPECT_NE(start->pages[1], kNoPage);
  EXPECT_EQ(start->pages[2], kNoPage);
  const auto info = world.sessions.EndImport(start->turn, true, 1);
  EXPECT_EQ(info->position, 20);
  EXPECT_EQ(info->tiers.host_tokens, 8);
  EXPECT_EQ(info->tiers.absent_tokens, 12);
  EXPECT_FALSE(
      world.sessions.BeginImport(1, {.name = "b", .tokens = tokens, .kv_tokens = 21}, 1).ok());
  world.CheckInvariants();
}

}  // namespace
}  // namespace quire

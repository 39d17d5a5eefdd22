// Random programs of clients, turns, pressure and faults against a model that stores only the
// tokens of each session. Every read of KV checks it (SessionWorld).
// Covers engine/schedule/sessions/session_book.cc, engine/schedule/sessions/session_leases.cc,
// engine/values/session.cc
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "engine/schedule/sessions/session_snapshots.h"
#include "tests/engine/schedule/session_world.h"

namespace quire {
namespace {

struct ModelSession {
  std::vector<int32_t> tokens;
  uint64_t turns = 0;
  bool busy = false;
  double ttl_seconds = 0;
  int64_t used_ns = 0;
  int32_t unknown = 0;  // tokens that came without their KV
};
using Id = std::pair<TenantId, SessionName>;

class Program {
 public:
  // `bounds`: both tenants have bounds of host memory, which change.
  Program(uint64_t seed, const WorldConfig& config, bool faults, bool bounds = false)
      : rng_(seed), world_(config), faults_(faults), bounds_(bounds) {
    world_.sessions.SetObserver(&told_);
  }

  void Step() {
    world_.now_ns += Below(4) == 0 ? Below(2'000'000'000) : Below(1'000'000);
    world_.sessions.Expire(world_.now_ns, 1000);
    ExpireModel();
    const int32_t what = Below(100);
    if (what < 18)
      BeginTurn();
    else if (what < 40)
      AdvanceTurn();
    else if (what < 52)
      EndTurn();
    else if (what < 61)
      Client();
    else if (what < 62)
      Transfer();
    else if (what < 63)
      Snapshot();
    else if (what < 64)
      Recall();
    else if (what < 80)
      world_.Send();
    else
      AckSome();
    if (faults_ && Below(5000) == 0) LoseDevice();
    if (bounds_) CheckBounds();
    if (bounds_ && Below(200) == 0) SetBound();
  }

  // Each account counts the pages of its tenant's nodes, and those that a snapshot still reads. A
  // tenant at its bound or above it gets no more than it had.
  void CheckBounds() {
    const auto pages = [this](TenantId tenant) {
      const AccountId account = world_.accounts.Open(tenant);
      const int64_t count = world_.accounts[account].host_pages;
      world_.accounts.Close(account);
      return count;
    };
    for (const TenantId tenant : {0, 1}) {
      const int64_t now = pages(tenant), counted = world_.CountPages(tenant);
      int64_t& before = pages_before_[tenant];
      const int64_t bound = pages_bound_[tenant] == 0 ? 1000 : pages_bound_[tenant];
      EXPECT_LE(now, std::max(before, bound));
      EXPECT_LE(counted, now);
      if (!snapshot_) {
        EXPECT_EQ(counted, now);
      }
      steps_at_bound_ += now >= bound;
      steps_above_bound_ += now > bound;
      before = now;
    }
  }

  void SetBound() {
    const auto tenant = static_cast<TenantId>(Below(2));
    pages_bound_[tenant] = static_cast<int32_t>(Below(4) == 0 ? 0 : 1 + Below(20));
    world_.SetPages(tenant, pages_bound_[tenant]);
    const int64_t spare = world_.tree.evictions().num_spare_pages();
    CheckBounds();
    // No page that could go at once is left above the bound.
    if (spare > 0 && pages_bound_[1 - tenant] == 0 && pages_bound_[tenant] > 0) {
      const NodeId root = world_.tree.Find(tenant, {});
      EXPECT_TRUE(pages_before_[tenant] <= pages_bound_[tenant] ||
                  world_.tree.evictions().num_spare_pages(world_.tree.AccountOf(root)) == 0);
    }
  }
  int64_t steps_at_bound() const { return steps_at_bound_; }
  int64_t steps_above_bound() const { return steps_above_bound_; }

  void Check() {
    world_.CheckInvariants();
    EXPECT_EQ(world_.sessions.num_sessions(), static_cast<int64_t>(model_.size()));
    int64_t tokens = 0;
    for (const auto& [id, expected] : model_) {
      const auto info = world_.sessions.Get(id.first, id.second);
      ASSERT_TRUE(info.ok()) << id.second;
      const int32_t size = static_cast<int32_t>(expected.tokens.size());
      tokens += size;
      ASSERT_EQ(info->position, size);
      const bool told = !import_ || import_->id != id;  // an import is told when it is complete
      ASSERT_EQ(told_.tokens[id], told ? expected.tokens : std::vector<int32_t>());
      ASSERT_EQ(info->turns, expected.turns);
      ASSERT_EQ(info->state == SessionState::kActive, expected.busy);
      const SessionTiers& tiers = info->tiers;
      ASSERT_GE(tiers.absent_tokens, 0);
      ASSERT_LE(std::max(tiers.device_tokens, tiers.host_tokens), size - tiers.absent_tokens);
      ASSERT_GE(tiers.device_tokens + tiers.host_tokens, size - tiers.absent_tokens);
      // Turns, forks and cuts lose no KV; only the token sampled last has none yet.
      if (roomy_ && !expected.busy) {
        ASSERT_LE(tiers.absent_tokens, expected.unknown + 1);
      }
      world_.CheckKv(id.first, expected.tokens);
    }
    EXPECT_EQ(world_.sessions.num_tokens(), tokens);
  }

  // Ends everything. Then nothing is held, and no session is left.
  void Finish() {
    while (!turns_.empty()) {
      auto& [id, turn] = *turns_.begin();
      world_.Abort(turn);
      EndModel(id);
    }
    if (import_) Transfer();
    if (snapshot_) Snapshot();
    if (recall_) Recall();
    world_.Pump();
    Check();
    EXPECT_FALSE(world_.tiering.HasWork());
    EXPECT_EQ(world_.pool.reserved(), 0);
    for (const auto& [id, expected] : model_) {
      ASSERT_TRUE(world_.sessions.Unpin(id.first, id.second, world_.now_ns).ok());
    }
    world_.CheckInvariants();
    EXPECT_EQ(world_.pool.num_free() + world_.pool.num_cached(), world_.pool.total());
    for (const auto& [id, expected] : std::exchange(model_, {})) {
      ASSERT_TRUE(world_.sessions.Close(id.first, id.second).ok());
    }
    world_.CheckInvariants();
    EXPECT_EQ(world_.sessions.num_tokens(), 0);
    EXPECT_EQ(world_.tree.host().num_free_pages(), world_.tree.host().num_pages());
  }

  const SessionWorld& world() const { return world_; }
  int64_t restored_turns() const { return restored_turns_; }

 private:
  int64_t Below(int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(rng_);
  }
  Id SomeId() { return {Below(2), "s" + std::to_string(Below(8))}; }
  std::vector<int32_t> NewTokens() {
    // Few different texts, so that sessions share beginnings.
    return SomeTokens(static_cast<int32_t>(1 + Below(14)), static_cast<int32_t>(Below(2)));
  }

  void ExpireModel() {
    std::erase_if(model_, [this](const auto& entry) {
      const ModelSession& session = entry.second;
      return !session.busy &&
             session.used_ns + static_cast<int64_t>(session.ttl_seconds * 1e9) <= world_.now_ns;
    });
  }

  void BeginTurn() {
    const Id id = SomeId();
    const auto found = model_.find(id);
    if (found == model_.end()) return Create(id);
    if (found->second.tokens.size() > 100) return Truncate(id);
    auto turn = world_.Begin(id.first, id.second, NewTokens());
    if (found->second.busy) {
      EXPECT_FALSE(turn);
    } else if (turn) {
      found->second.busy = true;
      restored_turns_ += turn->ticket != 0;
      turns_[id] = std::move(*turn);
    } else {
      found->second.used_ns = world_.now_ns;  // aborted for want of blocks
    }
  }

  std::map<Id, WorldTurn>::iterator SomeTurn() {
    return std::next(turns_.begin(), Below(static_cast<int64_t>(turns_.size())));
  }

  void AdvanceTurn() {
    if (turns_.empty()) return;
    const auto it = SomeTurn();
    WorldTurn& turn = it->second;
    if (computed_.contains(turn.turn)) return;
    if (world_.Advance(turn)) {
      computed_.insert(turn.turn);
    } else if (turn.turn == 0) {
      EndModel(it->first);
    }
  }

  void EndTurn() {
    if (turns_.empty()) return;
    const auto it = SomeTurn();
    WorldTurn& turn = it->second;
    const uint64_t number = turn.turn;
    ModelSession& session = model_.at(it->first);
    if (computed_.contains(number) && Below(4) > 0) {
      std::vector<int32_t> expected = turn.tokens;
      const std::vector<int32_t> output = NewTokens();
      expected.insert(expected.end(), output.begin(), output.end());
      world_.Commit(turn, output);
      const auto info = world_.sessions.Get(it->first.first, it->first.second);
      if (info->turns > session.turns) {  // there was room for the output
        session.tokens = expected;
        ++session.turns;
        session.unknown = 0;
      }
    } else {
      world_.Abort(turn);
    }
    computed_.erase(number);
    EndModel(it->first);
  }

  void EndModel(const Id& id) {
    ModelSession& session = model_.at(id);
    session.busy = false;
    session.used_ns = world_.now_ns;
    turns_.erase(Id(id));
  }

  void Create(const Id& id) {
    const SessionOptions options{.ttl_seconds = static_cast<double>(1 + Below(600)),
                                 .idle_offload_after_seconds = static_cast<double>(Below(4)),
                                 .retain_priority = static_cast<int32_t>(Below(3) - 1)};
    ASSERT_TRUE(world_.sessions.Create(id.first, id.second, options, world_.now_ns).ok());
    model_[id] = {.ttl_seconds = options.ttl_seconds, .used_ns = world_.now_ns};
  }

  void Truncate(const Id& id) {
    ModelSession& session = model_.at(id);
    const int32_t size = static_cast<int32_t>(session.tokens.size());
    const int32_t position = Below(3) == 0
                                 ? size - static_cast<int32_t>(Below(std::min(size + 1, 4)))
                                 : static_cast<int32_t>(Below(size + 1));
    const auto info = world_.sessions.Truncate(id.first, id.second, position, world_.now_ns);
    EXPECT_EQ(info.ok(), !session.busy);
    if (info.ok()) session.tokens.resize(position);
  }

  void Fork(const Id& from) {
    const Id to = {from.first, SomeId().second};
    const ModelSession& session = model_.at(from);
    const auto size = static_cast<int32_t>(session.tokens.size());
    std::optional<int32_t> position;
    if (Below(2) == 0) position = static_cast<int32_t>(Below(size + 1));
    const auto info =
        world_.sessions.Fork(from.first, from.second, to.second, position, world_.now_ns);
    EXPECT_EQ(info.ok(), !session.busy && !model_.contains(to));
    if (!info.ok()) return;
    ModelSession copy = session;
    copy.tokens.resize(position.value_or(size));
    copy.turns = 0;
    copy.used_ns = world_.now_ns;
    model_[to] = copy;
  }

  void Client() {
    const Id id = SomeId();
    auto& [tenant, name] = id;
    const auto found = model_.find(id);
    SessionStore& sessions = world_.sessions;
    const int64_t now = world_.now_ns;
    if (found == model_.end()) {
      EXPECT_EQ(sessions.Offload(tenant, name, now).status().code(), absl::StatusCode::kNotFound);
      return;
    }
    const bool busy = found->second.busy;
    switch (Below(8)) {
      case 0: EXPECT_EQ(sessions.Offload(tenant, name, now).ok(), !busy); break;
      case 1: EXPECT_EQ(sessions.Prefetch(tenant, name, now).ok(), !busy); break;
      case 2: (void)sessions.Pin(tenant, name, now); break;
      case 3: EXPECT_TRUE(sessions.Unpin(tenant, name, now).ok()); break;
      case 4:
        EXPECT_TRUE(sessions.Touch(tenant, name, {}, now).ok());
        found->second.used_ns = now;
        break;
      case 5: Fork(id); break;
      case 6: Truncate(id); break;
      case 7:
        EXPECT_EQ(sessions.Close(tenant, name).ok(), !busy);
        if (!busy) model_.erase(found);
        break;
    }
  }

  // Exports a session and imports it some time later under another name.
  void Transfer() {
    if (import_) {
      const auto [id, turn, ok] = *std::exchange(import_, std::nullopt);
      EXPECT_EQ(world_.sessions.EndImport(turn, ok, world_.now_ns).ok(), ok);
      if (!ok) model_.erase(id);
      if (ok) EndModel(id);
      return;
    }
    const Id from = SomeId(), to = SomeId();
    const auto found = model_.find(from);
    if (found == model_.end()) return;
    const bool busy = found->second.busy;
    const auto bytes = world_.sessions.BeginExport(from.first, from.second, world_.now_ns);
    ASSERT_EQ(bytes.ok(), !busy);
    if (busy) return;
    EXPECT_EQ(bytes->tokens, found->second.tokens);
    world_.CheckPages(from.first, bytes->tokens, bytes->kv_tokens, bytes->pages);
    SessionStore::Import import{.name = to.second,
                                .options = {.ttl_seconds = 300},
                                .tokens = bytes->tokens,
                                .kv_tokens = bytes->kv_tokens};
    const auto start = world_.sessions.BeginImport(to.first, import, world_.now_ns);
    EXPECT_EQ(start.ok(), !model_.contains(to));
    world_.sessions.AbortTurn(bytes->turn, world_.now_ns);
    found->second.used_ns = world_.now_ns;
    if (!start.ok()) return;
    const bool complete = Below(4) > 0;
    if (complete) world_.FillPages(to.first, import.tokens, start->pages);
    const auto size = static_cast<int32_t>(import.tokens.size());
    model_[to] = {.tokens = import.tokens,
                  .busy = true,
                  .ttl_seconds = 300,
                  .unknown = size - import.kv_tokens};
    import_ = {to, start->turn, complete};
  }

  // Reads a session's pages, whatever happens to it and to them meanwhile.
  void Snapshot() {
    SessionSnapshots& snapshots = world_.sessions.snapshots();
    if (snapshot_) {
      world_.CheckPages(snapshot_->first, snapshot_->second.tokens, snapshot_->second.kv_tokens,
                        snapshot_->second.pages);
      snapshots.End(snapshot_->second.turn);
      snapshot_.reset();
      return;
    }
    const Id id = SomeId();
    const auto found = model_.find(id);
    if (found == model_.end() || (import_ && import_->id == id)) return;
    snapshot_.emplace(id.first, snapshots.Begin(id.first, id.second, true));
    EXPECT_EQ(snapshot_->second.tokens, found->second.tokens);
  }

  // Fills pages with KV that a file might have: of the session's tokens, or of those it had.
  void Recall() {
    SessionSnapshots& snapshots = world_.sessions.snapshots();
    if (recall_) {
      auto& [id, tokens, start] = *recall_;
      const bool complete = roomy_ || Below(4) > 0;
      if (complete) world_.FillPages(id.first, tokens, start.pages);
      snapshots.EndRecall(start.turn, complete);
      recall_.reset();
      return;
    }
    const Id id = SomeId();
    const auto found = model_.find(id);
    if (found == model_.end() || (import_ && import_->id == id)) return;
    std::vector<int32_t> tokens = found->second.tokens;
    tokens.resize(static_cast<size_t>(Below(static_cast<int64_t>(tokens.size()) + 1)));
    for (const int32_t token : NewTokens()) tokens.push_back(token);
    const auto start = snapshots.BeginRecall(id.first, id.second, tokens, world_.now_ns);
    ASSERT_TRUE(start.ok());
    tokens.resize(static_cast<size_t>(start->kv_tokens));
    recall_ = {id, tokens, *start};
  }

  void AckSome() {
    if (world_.jobs.empty()) return;
    const size_t i = Below(static_cast<int64_t>(world_.jobs.size()));
    if (Below(3) == 0) return world_.Execute(i);
    if (!faults_ || Below(4) > 0) return world_.Ack(i);
    const bool load = world_.jobs[i].job.direction == CopyDirection::kLoad;
    const auto count = static_cast<int32_t>(world_.jobs[i].job.copies.size());
    switch (Below(3)) {
      case 0: world_.Ack(i, CopyStatus::kFailed); break;
      case 1:
        if (load) world_.Ack(i, CopyStatus::kCorrupt, static_cast<int32_t>(Below(count)));
        break;
      case 2: world_.now_ns += 11'000'000'000; break;  // all copies in flight are late
    }
  }

  void LoseDevice() {
    while (!turns_.empty()) {
      const auto it = turns_.begin();
      computed_.erase(it->second.turn);
      world_.Abort(it->second);
      EndModel(it->first);
    }
    world_.LoseDevice();
  }

  // The tokens of each session as the observer was told.
  struct Told : SessionObserver {
    std::map<Id, std::vector<int32_t>> tokens;

    void OnSessionChange(const SessionInfo& info) override {
      if (info.state == SessionState::kClosed) tokens.erase({info.tenant, info.name});
    }
    void OnTokens(const SessionInfo& info, int32_t kept, std::span<const int32_t> added) override {
      std::vector<int32_t>& session = tokens[{info.tenant, info.name}];
      ASSERT_LE(kept, static_cast<int32_t>(session.size()));
      session.resize(static_cast<size_t>(kept));
      session.insert(session.end(), added.begin(), added.end());
      EXPECT_EQ(info.position, static_cast<int32_t>(session.size()));
    }
  };

  Told told_;
  std::mt19937_64 rng_;
  SessionWorld world_;
  const bool faults_;
  const bool bounds_;
  std::array<int32_t, 2> pages_bound_{};  // by tenant; 0: none
  std::array<int64_t, 2> pages_before_{};
  int64_t steps_at_bound_ = 0, steps_above_bound_ = 0;
  const bool roomy_ = !faults_ && world_.config.num_blocks > 500;
  std::map<Id, ModelSession> model_;
  std::map<Id, WorldTurn> turns_;
  std::set<uint64_t> computed_;
  struct Import {
    Id id;
    uint64_t turn = 0;
    bool complete = false;
  };
  std::optional<Import> import_;
  std::optional<std::pair<TenantId, SessionTransfer>> snapshot_;
  struct Recalled {
    Id id;
    std::vector<int32_t> tokens;
    SessionTransfer start;
  };
  std::optional<Recalled> recall_;
  int64_t restored_turns_ = 0;
};

void RunProgram(uint64_t seed, const WorldConfig& config, bool faults, int32_t steps,
                bool bounds = false) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Program program(seed, config, faults, bounds);
  for (int32_t i = 0; i < steps; ++i) {
    program.Step();
    if (i % 16 == 0) program.Check();
    if (testing::Test::HasFailure()) return;
  }
  program.Finish();
  const TieringStats& stats = program.world().tiering.stats();
  EXPECT_GT(stats.stored_blocks, 0);
  EXPECT_GT(stats.loaded_blocks, 0);
  EXPECT_GT(program.restored_turns(), 0);
  if (bounds) {
    EXPECT_GT(program.steps_at_bound(), steps / 100);
    EXPECT_GT(program.steps_above_bound(), 0);
  }
  if (faults) {
    EXPECT_GT(stats.failed_jobs, 0);
    EXPECT_GT(stats.late_jobs, 0);
    EXPECT_GT(stats.corrupt_pages, 0);
  }
}

WorldConfig Small(int32_t blocks, int32_t pages) {
  WorldConfig config;
  config.num_blocks = blocks + 1;
  config.num_pages = pages;
  return config;
}

TEST(SessionRandomTest, SurvivesEveryFault) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    RunProgram(seed, Small(40, 30), true, 50'000);
    if (HasFailure()) return;
  }
}

TEST(SessionRandomTest, WorksWithLittleRoomOnTheHost) {
  for (uint64_t seed = 101; seed <= 104; ++seed) {
    RunProgram(seed, Small(60, 7), true, 50'000);
    if (HasFailure()) return;
  }
}

TEST(SessionRandomTest, WorksWithLittleRoomOnTheDevice) {
  for (uint64_t seed = 201; seed <= 204; ++seed) {
    RunProgram(seed, Small(24, 100), true, 50'000);
    if (HasFailure()) return;
  }
}

TEST(SessionRandomTest, WorksWithBlocksOfEverySize) {
  for (uint64_t seed = 501; seed <= 510; ++seed) {
    WorldConfig config = Small(static_cast<int32_t>(30 + seed * 7 % 50), 20);
    config.block_size = static_cast<int32_t>(1 + seed % 5);
    config.tiering.block_bytes = int64_t{seed % 2 == 0 ? 32 : 1} << 20;  // two to a job
    RunProgram(seed, config, true, 30'000);
    if (HasFailure()) return;
  }
}

TEST(SessionRandomTest, KeepsTenantsWithinTheirBoundsOfHostMemory) {
  for (uint64_t seed = 601; seed <= 608; ++seed) {
    RunProgram(seed, Small(40, seed % 2 == 0 ? 30 : 100), seed % 4 != 0, 50'000, true);
    if (HasFailure()) return;
  }
}

TEST(SessionRandomTest, LosesNothingWhereThereIsRoom) {
  for (uint64_t seed = 401; seed <= 404; ++seed) {
    RunProgram(seed, Small(1000, 1000), false, 50'000);
    if (HasFailure()) return;
  }
}

TEST(SessionRandomTest, WorksWithoutFaults) {
  for (uint64_t seed = 301; seed <= 304; ++seed) {
    RunProgram(seed, Small(40, 30), false, 50'000);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace quire

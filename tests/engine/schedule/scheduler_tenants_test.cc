// Tenants in the scheduler, by counted work alone: computed tokens follow the weights, a flood
// delays another tenant's request by one chunk at most, idle time is not saved up, and limits of
// running requests hold.
// Covers engine/schedule/fair_walk.cc, engine/schedule/part_claims.cc
// Covers engine/schedule/tenants/tenant_accounts.cc
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

constexpr TenantId kFlood = 11;
constexpr TenantId kLight = 12;

SchedulerConfig Config() {
  SchedulerConfig config;
  config.block_size = 4;
  config.max_model_len = 128;
  config.num_blocks = 600;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;
  config.max_num_queued_reqs = 12'000;
  return config;
}

// A model that never ends a request by itself.
ShadowModel Endless() { return {.vocab_size = 50, .eos_token = 7, .eos_probability = 0}; }

TenantTable Weights(double flood, double light) {
  TenantTable table;
  table.tenants = {{kFlood, {.weight = flood}}, {kLight, {.weight = light}}};
  return table;
}

// Runs the engine step by step, and counts each tenant's computed tokens.
class Counted {
 public:
  explicit Counted(const SchedulerConfig& config, int32_t depth = 2)
      : sim(config, Endless()), depth_(depth) {
    sim.check_every = 97;
  }

  RequestId Add(TenantId tenant, int32_t prompt, int32_t output, int32_t priority = 0) {
    const RequestId id = sim.Add({.prompt_tokens = prompt,
                                  .max_tokens = output,
                                  .priority = priority,
                                  .arrival_ns = ++sim.now_ns,
                                  .tenant = tenant});
    tenants_[id] = tenant;
    return id;
  }

  // Plans one step, with `depth` in flight.
  bool Step() {
    if (sim.steps_in_flight() == depth_) sim.Retire();
    const bool any = sim.Schedule();
    running.clear();
    for (const Share& share : sim.last_plan()) {
      computed[tenants_.at(share.id)] += share.count;
      ++running[tenants_.at(share.id)];
      if (share.count > 1) prefilled[tenants_.at(share.id)] += share.count;
    }
    if (!any && sim.steps_in_flight() > 0) sim.Retire();
    return any;
  }

  int32_t Waiting(TenantId tenant) {
    figures_.clear();
    sim.scheduler().TakeTenantChanges(figures_);
    for (const TenantStats& stats : figures_) waiting_[stats.tenant] = stats.queued;
    return waiting_[tenant];
  }

  SimulatedEngine sim;
  std::map<TenantId, int64_t> computed, prefilled;
  std::map<TenantId, int32_t> running;  // rows of the last step

 private:
  const int32_t depth_;
  std::map<RequestId, TenantId> tenants_;
  std::vector<TenantStats> figures_;
  std::map<TenantId, int32_t> waiting_;
};

// While two tenants have requests waiting, their computed tokens by weight stay together: within
// one step's budget, and what the rows of one tenant may still compute when it is ahead.
TEST(SchedulerTenantsTest, ComputedTokensOfBackloggedTenantsFollowTheirWeights) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto between = [&](int32_t low, int32_t high) {
      return low + static_cast<int32_t>(random() % (high - low + 1));
    };
    const SchedulerConfig config = Config();
    Counted engine(config);
    const double flood = std::array{1.0, 1.0, 2.0, 0.5}[between(0, 3)];
    const double light = std::array{1.0, 3.0}[between(0, 1)];
    engine.sim.SetTenants(Weights(flood, light));
    const int32_t longest_prompt = between(4, 60);
    const int32_t longest_output = between(1, 30);
    const auto fill = [&](TenantId tenant) {
      while (engine.Waiting(tenant) < 40) {
        engine.Add(tenant, between(1, longest_prompt), between(1, longest_output));
      }
    };
    for (int32_t i = 0; i < 20; ++i) fill(kFlood), engine.Step();
    const double bound =
        (config.max_num_batched_tokens + config.max_num_seqs * (longest_prompt + longest_output)) /
        std::min(flood, light);
    double low = 0, high = 0;
    engine.computed.clear();
    for (int32_t i = 0; i < 2000; ++i) {
      fill(kFlood), fill(kLight);
      engine.Step();
      const double ahead = engine.computed[kFlood] / flood - engine.computed[kLight] / light;
      low = std::min(low, ahead);
      high = std::max(high, ahead);
    }
    // The difference over any window is that of two instants.
    EXPECT_LE(high - low, bound);
    EXPECT_GT(engine.computed[kFlood] / flood, 5 * bound);
    engine.sim.CancelAll(FinishReason::kDraining);
  }
}

// Ten thousand requests of one tenant wait; another's request is computed after one chunk of theirs
// at most, whether rows are free or not.
TEST(SchedulerTenantsTest, FloodDelaysAnotherTenantByOneChunkAtMost) {
  const SchedulerConfig config = Config();
  Counted engine(config);
  engine.sim.check_every = 1009;
  std::mt19937_64 random(5);
  for (int32_t i = 0; i < 10'000; ++i) {
    engine.Add(kFlood, static_cast<int32_t>(1 + random() % 100),
               static_cast<int32_t>(1 + random() % 28));
  }
  for (int32_t round = 0; round < 60; ++round) {
    for (uint64_t i = random() % 40; i > 0; --i) ASSERT_TRUE(engine.Step());
    const int64_t before = engine.prefilled[kFlood];
    int64_t waited_for = before;
    const RequestId id = engine.Add(kLight, static_cast<int32_t>(1 + random() % 30), 4);
    int32_t steps = 0;
    while (engine.sim.outcome(id).first_start < 0) {
      waited_for = engine.prefilled[kFlood];
      ASSERT_LE(++steps, 2);  // a row comes back when the step in flight retires
      engine.Step();
    }
    EXPECT_LE(waited_for - before, config.max_num_batched_tokens);
    // It keeps its row to the end.
    while (!engine.sim.outcome(id).finished) ASSERT_TRUE(engine.Step());
    EXPECT_EQ(engine.sim.outcome(id).finish.usage.preemptions, 0);
  }
  EXPECT_GT(engine.sim.load().waiting, 8000);
  engine.sim.CancelAll(FinishReason::kDraining);
}

// Long prompts of one tenant that have begun do not hold up a short one of another.
TEST(SchedulerTenantsTest, BegunPrefillsOfAnotherTenantAreOvertaken) {
  Counted engine(Config());
  for (int32_t i = 0; i < 20; ++i) engine.Add(kFlood, 120, 4);
  for (int32_t i = 0; i < 3; ++i) engine.Step();
  const RequestId id = engine.Add(kLight, 30, 2);
  engine.Step();
  EXPECT_EQ(engine.sim.ShareOf(id).count, 30);
  engine.sim.RunToEnd(2, 10'000);
}

TEST(SchedulerTenantsTest, BlocksOfATenantAboveItsPartAreGivenUp) {
  SchedulerConfig config = Config();
  config.num_blocks = 101;  // four of the flood's requests
  config.growth_horizon = 0;
  Counted engine(config);
  for (int32_t i = 0; i < 50; ++i) engine.Add(kFlood, 96, 20);
  for (int32_t i = 0; i < 20; ++i) engine.Step();
  EXPECT_LT(engine.sim.load().free_blocks, 31);
  const RequestId id = engine.Add(kLight, 120, 4);
  for (int32_t i = 0; i < 3; ++i) engine.Step();
  EXPECT_GE(engine.sim.outcome(id).first_start, 0);
  EXPECT_GT(engine.sim.preempted(), 0);
  engine.sim.CancelAll(FinishReason::kDraining);
}

// A tenant that was idle competes from now on: it does not get the tokens that it did not use.
TEST(SchedulerTenantsTest, IdleTimeIsNotSavedUp) {
  const SchedulerConfig config = Config();
  Counted engine(config);
  for (int32_t i = 0; i < 2000; ++i) engine.Add(kFlood, 20, 8);
  for (int32_t i = 0; i < 300; ++i) engine.Step();
  ASSERT_GT(engine.computed[kFlood], 4000);
  for (int32_t i = 0; i < 2000; ++i) engine.Add(kLight, 20, 8);
  engine.computed.clear();
  for (int32_t i = 0; i < 100; ++i) engine.Step();
  // Both got half, but for a step and the rows of one of them.
  const int64_t apart = engine.computed[kLight] - engine.computed[kFlood];
  EXPECT_LE(std::abs(apart), config.max_num_batched_tokens + config.max_num_seqs * 28);
  engine.sim.CancelAll(FinishReason::kDraining);
}

TEST(SchedulerTenantsTest, RunningRequestsStayWithinTheLimit) {
  Counted engine(Config());
  TenantTable table;
  table.tenants = {{kFlood, {.max_running_requests = 3}}};
  engine.sim.SetTenants(table);
  for (int32_t i = 0; i < 40; ++i) engine.Add(kFlood, 10, 10);
  for (int32_t i = 0; i < 4; ++i) engine.Add(kLight, 10, 30);
  int32_t most = 0, most_light = 0;
  for (int32_t i = 0; i < 40; ++i) {
    engine.Step();
    most = std::max(most, engine.running[kFlood]);
    most_light = std::max(most_light, engine.running[kLight]);
  }
  EXPECT_EQ(most, 3);
  EXPECT_EQ(most_light, 4);
  // A limit that is taken away lets the others begin.
  engine.sim.SetTenants({});
  for (int32_t i = 0; i < 4; ++i) engine.Step();
  EXPECT_GT(engine.running[kFlood], 3);
  engine.sim.RunToEnd(2, 10'000);
}

// Higher priority comes first, whatever its tenant was served.
TEST(SchedulerTenantsTest, PriorityComesBeforeShares) {
  Counted engine(Config());
  for (int32_t i = 0; i < 30; ++i) engine.Add(kFlood, 20, 20);
  for (int32_t i = 0; i < 50; ++i) engine.Step();
  for (int32_t i = 0; i < 4; ++i) engine.Add(kLight, 20, 4);
  const RequestId urgent = engine.Add(kFlood, 20, 4, 1);
  const RequestId light = engine.Add(kLight, 20, 4);
  while (engine.sim.outcome(urgent).first_start < 0) {
    ASSERT_TRUE(engine.Step());
    EXPECT_LT(engine.sim.outcome(light).first_start, 0);
  }
  engine.sim.RunToEnd(2, 10'000);
}

// Tenants that come and go leave nothing behind.
TEST(SchedulerTenantsTest, AccountsOfTenantsThatWentAreReused) {
  Counted engine(Config());
  engine.sim.check_every = 211;
  for (TenantId tenant = 100; tenant < 4000; ++tenant) {
    engine.Add(tenant, 4, 1);
    if (tenant % 5 == 0) engine.sim.RunToEnd(2, 100);
  }
  engine.sim.RunToEnd(2, 100);
  std::vector<TenantStats> figures;
  engine.sim.scheduler().TakeTenantChanges(figures);
  // 1,024 idle ones, one for each block that is cached, and 64 roots without blocks.
  EXPECT_LE(figures.size(), 1024u + 599 + 64 + 10);
  EXPECT_GT(figures.size(), 1000u);
}

TEST(SchedulerTenantsTest, FiguresCountEachTenantsTokens) {
  Counted engine(Config());
  engine.Add(kFlood, 10, 3);
  engine.Add(kLight, 7, 2);
  engine.sim.RunToEnd(2, 100);
  std::vector<TenantStats> figures;
  engine.sim.scheduler().TakeTenantChanges(figures);
  std::map<TenantId, TenantStats> by_tenant;
  for (const TenantStats& stats : figures) by_tenant[stats.tenant] = stats;
  EXPECT_EQ(by_tenant[kFlood].prompt_tokens, 10u);
  EXPECT_EQ(by_tenant[kFlood].generated_tokens, 3u);
  EXPECT_EQ(by_tenant[kLight].prompt_tokens, 7u);
  EXPECT_EQ(by_tenant[kLight].generated_tokens, 2u);
  EXPECT_EQ(by_tenant[kLight].queued, 0);
  figures.clear();
  engine.sim.scheduler().TakeTenantChanges(figures);
  EXPECT_TRUE(figures.empty());
}

TEST(SchedulerTenantsTest, NothingIsLeftOfAPromptThatWasCancelled) {
  Counted engine(Config());
  const RequestId id = engine.Add(kFlood, 100, 1);
  engine.Step();
  const auto left = [&engine] {
    std::vector<TenantStats> figures;
    engine.sim.scheduler().TakeTenantChanges(figures);
    for (const TenantStats& stats : figures) {
      if (stats.tenant == kFlood) return stats.prefill_tokens_left;
    }
    return int64_t{-1};
  };
  EXPECT_EQ(left(), 100 - 32);
  engine.sim.Cancel(id);
  engine.sim.RunToEnd(2, 100);
  EXPECT_EQ(left(), 0);
}

TEST(SchedulerTenantsTest, SessionsStayWithinTheTenantsLimits) {
  SimulatedEngine sim(SessionConfig(/*usable_blocks=*/64, /*num_pages=*/0, /*max_model_len=*/128));
  TenantTable table;
  table.tenants = {{kLight, {.max_sessions = 2, .max_session_tokens = 20}}};
  sim.SetTenants(table);
  SessionStore& store = sim.scheduler().sessions();
  EXPECT_TRUE(store.Create(kLight, "a", {}, 1).ok());
  EXPECT_TRUE(store.Create(kLight, "b", {}, 1).ok());
  EXPECT_EQ(store.Create(kLight, "c", {}, 1).status().code(), absl::StatusCode::kResourceExhausted);
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_TRUE(store.Create(kFlood, name, {}, 1).ok());
  // A limit that is raised applies at once; a session beyond a lowered one stays.
  table.tenants = {{kLight, {.max_sessions = 3}}};
  sim.SetTenants(table);
  EXPECT_TRUE(store.Create(kLight, "c", {}, 1).ok());
  table.tenants = {{kLight, {.max_sessions = 1}}};
  sim.SetTenants(table);
  EXPECT_TRUE(store.Get(kLight, "c").ok());
  EXPECT_FALSE(store.Create(kLight, "d", {}, 1).ok());
}

// The KV of a tenant's sessions beyond its bound of host memory stays on the device or is computed
// again; its answers are the same, and the other tenant's KV comes back from the host.
TEST(SchedulerTenantsTest, HostMemoryOfATenantIsBounded) {
  SimulatedEngine sim(SessionConfig(/*usable_blocks=*/24, /*num_pages=*/64, /*max_model_len=*/128));
  TenantTable table;
  table.tenants = {{kLight, {.max_host_kv_tokens = 11}}};  // two blocks of four tokens
  sim.SetTenants(table);
  SessionStore& store = sim.scheduler().sessions();
  std::map<TenantId, TenantStats> figures;
  const auto pages = [&](TenantId tenant) {
    std::vector<TenantStats> changed;
    sim.scheduler().TakeTenantChanges(changed);
    for (const TenantStats& stats : changed) figures[stats.tenant] = stats;
    return figures[tenant].host_pages;
  };
  const auto turn = [&](TenantId tenant) {
    const RequestId id = sim.Add({.prompt_tokens = 20,
                                  .max_tokens = 5,
                                  .arrival_ns = ++sim.now_ns,
                                  .stops_at_eos = false,
                                  .tenant = tenant,
                                  .session = "s"});
    sim.RunToEnd(2);
    sim.ExpectUndisturbed(id);
    return sim.outcome(id).finish.residency.outcome;
  };
  for (const TenantId tenant : {kLight, kFlood}) {
    sim.CreateSession(tenant, "s");
    turn(tenant);
    ASSERT_TRUE(store.Offload(tenant, "s", sim.now_ns).ok());
    sim.RunCopies();
  }
  // 24 tokens with KV: six blocks.
  EXPECT_EQ(pages(kLight), 2);
  EXPECT_EQ(pages(kFlood), 6);
  EXPECT_EQ(store.Get(kLight, "s")->tiers.host_tokens, 8);
  EXPECT_EQ(store.Get(kFlood, "s")->tiers.host_tokens, 24);
  // Other requests take all blocks of the device.
  const RequestId other = sim.Add({.prompt_tokens = 90, .max_tokens = 2, .tenant = 3});
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(other);
  EXPECT_EQ(turn(kFlood), Residency::Outcome::kRestored);
  EXPECT_EQ(turn(kLight), Residency::Outcome::kPartial);
  EXPECT_EQ(pages(kFlood), 6);
  EXPECT_EQ(pages(kLight), 2);
  for (const TenantId tenant : {kLight, kFlood}) {
    sim.CheckSession(tenant, "s");
    EXPECT_TRUE(store.Close(tenant, "s").ok());
  }
  // Without a wish for them, pages beyond a lowered bound go at once.
  table.tenants = {{kFlood, {.max_host_kv_tokens = 4}}};
  sim.SetTenants(table);
  EXPECT_EQ(pages(kFlood), 1);
  EXPECT_EQ(pages(kLight), 2);
  sim.RunCopies();
  sim.ExpectIdle();
}

}  // namespace
}  // namespace quire

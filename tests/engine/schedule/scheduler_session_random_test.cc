// Seeded random programs of conversations: turns of two tenants' sessions among other requests,
// over tiny pools and hosts of a few pages, with forks, truncations, offloads, prefetches, pins,
// cancels, pauses, worker deaths, flushes, bounds of host memory by tenant, readers of KV events,
// pages of host memory that become ready one by one, and copies that fail, are late, reordered, or
// damaged. In every program every request gives its own tokens, every session has the tokens it
// should have, and in the end nothing is held. A failure prints its seed; --seed=N runs that
// program alone, --steps=N runs programs until that many steps are done.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>

#include "engine/schedule/kv/kv_event_source.h"
#include "tests/engine/schedule/event_replay.h"
#include "tests/engine/schedule/random_steps.h"
#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

constexpr int64_t kMs = 1'000'000;

class Conversations {
 public:
  // Calm: there is room for everything, copies succeed, no worker dies and no request is paused.
  explicit Conversations(uint64_t seed, bool calm = false)
      : calm_(calm),
        random_(seed),
        config_(RandomConfig()),
        depth_(Between(1, 3)),
        sim_(config_, RandomModel(), RandomFaults(seed)) {
    sim_.ns_per_token = calm_ ? 0 : std::array{0, 10, 100000}[Between(0, 2)];
    sim_.check_every = 3;
  }

  void Run() {
    const int32_t num_operations = OneIn(10) ? Between(1000, 5000) : Between(50, 800);
    for (int32_t i = 0; i < num_operations && !testing::Test::HasFailure(); ++i) Operate();
    Quiesce();
    if (!testing::Test::HasFailure()) CheckOutputs();
  }

  int64_t num_steps = 0;
  std::map<std::string, int64_t> counts;  // of the cases that were reached

 private:
  static constexpr int32_t kManyRows = 64;
  static constexpr int64_t kNoBound = 1'000'000;

  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % (high - low + 1));
  }
  bool OneIn(int32_t n) { return Between(1, n) == 1; }

  SchedulerConfig RandomConfig() {
    SchedulerConfig config;
    config.block_size = std::array{1, 2, 4, 8, 16}[Between(0, 4)];
    config.max_model_len = Between(16, 120);
    const int32_t blocks_per_sequence = config.max_model_len / config.block_size + 1;
    config.num_blocks = 2 + blocks_per_sequence + Between(0, blocks_per_sequence * 3);
    config.max_num_seqs = Between(1, 6);
    config.max_num_batched_tokens = OneIn(3) ? Between(1, 8) : Between(8, 64);
    config.max_num_queued_reqs = 16;
    config.growth_horizon = OneIn(2) ? 0 : Between(0, 32);
    config.prefix_cache = !OneIn(8);
    config.step_guesses = OneIn(2) ? Between(4, 24) : 0;
    config.num_pages = OneIn(8) ? 0 : Between(1, config.num_blocks * 2);
    config.sessions = {.max_sessions = 12,
                       .max_sessions_per_tenant = 8,
                       .max_session_tokens = 1000,
                       .max_model_len = config.max_model_len,
                       .default_ttl_seconds = OneIn(4) ? 0.3 : 1e6,
                       .max_ttl_seconds = 1e6,
                       .default_idle_offload_seconds = OneIn(2) ? 0 : 0.02,
                       .max_pinned_share = OneIn(2) ? 0.0 : 0.3};
    config.tiering = {.block_bytes = 8 * config.block_size,
                      .low_watermark = OneIn(2) ? 0.1 : 0.5,
                      .high_watermark = 0.6,
                      .job_timeout_seconds = OneIn(3) ? 0.01 : 100};
    config.pages_arrive = !calm_ && OneIn(2);
    if (!calm_) return config;
    config.num_blocks = 40 * blocks_per_sequence;
    if (OneIn(2)) config.max_num_seqs = kManyRows;
    if (config.num_pages > 0) config.num_pages = 2 * config.num_blocks;
    config.tiering.job_timeout_seconds = 1000;
    return config;
  }

  static ShadowModel Model() { return {.vocab_size = 50, .eos_token = 7}; }
  ShadowModel RandomModel() {
    ShadowModel model = Model();
    model.eos_probability = std::array{0.0, 0.03, 0.3}[Between(0, 2)];
    model.nan_probability = OneIn(5) && !calm_ ? 0.01 : 0.0;
    model.usual_probability = config_.step_guesses > 0 ? std::array{0.9, 0.97}[Between(0, 1)] : 0.0;
    return model_ = model;
  }
  ShadowFaults RandomFaults(uint64_t seed) {
    if (calm_) return {.seed = seed};
    return {.seed = seed, .fail = OneIn(3) ? 0.2 : 0.0, .corrupt = OneIn(3) ? 0.1 : 0.0};
  }

  std::string AnyName() { return std::string(1, static_cast<char>('a' + Between(0, 5))); }
  // Tenants preempt each other where rows are short; a calm program preempts no sequence.
  TenantId AnyTenant() {
    const bool alone = calm_ && config_.max_num_seqs < kManyRows;
    return static_cast<TenantId>(alone ? 0 : Between(0, 1));
  }

  void Operate() {
    sim_.now_ns += Between(0, 3) * kMs;
    const int32_t dice = Between(0, 99);
    if (dice < 8) {
      Speak();
    } else if (dice < 10) {
      Ask();
    } else if (dice < 20) {
      ChangeSession();
    } else if (dice < 24) {
      Disturb();
    } else if (dice < 30) {
      sim_.OnTimer();
      if (OneIn(4)) sim_.scheduler().OnPagesReady(ready_pages_ += Between(0, 3));
    } else if (dice < 42) {
      sim_.SendCopy();
    } else if (dice < 54) {
      sim_.FinishCopy(OneIn(2) ? CopyDirection::kLoad : CopyDirection::kStore);
    } else if (dice < 78) {
      if (sim_.steps_in_flight() < depth_) num_steps += sim_.Schedule();
    } else if (sim_.steps_in_flight() > 0) {
      sim_.Retire();
    }
    counts["restoring"] += sim_.load().restoring > 0;
    if (!calm_) CheckPages();
    if (!calm_ && OneIn(80)) SetBound();
    if (OneIn(100)) Subscribe();
    sim_.scheduler().kv_events().Continue(Between(1, 20));
    if (OneIn(3)) TakeEvents();
  }

  // A limit of 0 to 12 blocks, or none.
  void SetBound() {
    const TenantId tenant = AnyTenant();
    const int64_t blocks = Between(0, 12);
    bounds_[tenant] = OneIn(4) ? kNoBound : blocks;
    TenantTable table;
    for (const auto& [each, bound] : bounds_) {
      // A limit of 0 is none, and one between whole blocks is the lower number of them.
      const int64_t tokens = bound * config_.block_size + Between(0, config_.block_size - 1);
      const int64_t limit = bound == 0 && tokens == 0 ? kNoBound : bound;
      bounds_[each] = limit;
      table.tenants.push_back({each, {.max_host_kv_tokens = limit == kNoBound ? 0 : tokens}});
    }
    sim_.SetTenants(table);
    CheckPages();
  }

  // No tenant gets pages at its bound or above it, and all together have at least those in use.
  void CheckPages() {
    figures_.clear();
    sim_.scheduler().TakeTenantChanges(figures_);
    int64_t sum = 0;
    for (const TenantStats& stats : figures_) {
      const auto bound = bounds_.find(stats.tenant);
      const int64_t most = bound == bounds_.end() ? kNoBound : bound->second;
      int64_t& pages = pages_[stats.tenant];
      EXPECT_LE(stats.host_pages, std::max(pages, most));
      pages = stats.host_pages;
      counts["at the bound"] += most > 0 && pages == most;
      counts["above the bound"] += pages > most;
    }
    for (const auto& [tenant, pages] : pages_) sum += pages;
    const CacheStats cache = sim_.scheduler().cache_stats();
    EXPECT_GE(sum, cache.host_pages_used);
    EXPECT_LE(sum, cache.host_pages_ready);
  }

  // The events count the tenant's whole blocks on the host in their own way. Tails are not told.
  void CheckPagesByEvents(TenantId tenant, const EventReplay& replay) {
    int64_t on_host = 0;
    for (const auto& [hash, block] : replay.blocks()) {
      on_host += block.on[static_cast<int>(KvTier::kHost)];
    }
    EXPECT_LE(on_host, pages_[tenant]);
    counts["pages by events"] += on_host;
  }

  // Nothing is held or kept: the pages that become free with each tenant's KV are all its pages.
  void CheckPagesByFlushes() {
    CheckPages();
    for (const TenantId tenant : {0, 1}) {
      const FlushedCache flushed = sim_.scheduler().Flush({.tenant = tenant});
      EXPECT_EQ(flushed.pages, pages_[tenant]);
      counts["pages by flushes"] += flushed.pages;
      CheckPages();
      EXPECT_EQ(pages_[tenant], 0);
    }
  }

  void Subscribe() {
    const TenantId tenant = AnyTenant();
    if (replays_.erase(tenant) > 0) return sim_.scheduler().kv_events().End(tenant);
    replays_[tenant];
    sim_.scheduler().kv_events().Begin(tenant);
  }

  void TakeEvents() {
    for (const KvEventSource::Change& change : sim_.scheduler().kv_events().Take()) {
      replays_.at(change.tenant).Apply(change.events, config_.block_size);
      counts["events"] += static_cast<int64_t>(change.events.size());
    }
  }

  // The events of the whole program say the same as a reader that begins now finds.
  void CheckEvents() {
    KvEventSource& source = sim_.scheduler().kv_events();
    const auto walk = [&] {
      while (source.Continue(1000)) {
      }
      TakeEvents();
    };
    walk();
    CheckPages();
    for (const auto& [tenant, replay] : replays_) CheckPagesByEvents(tenant, replay);
    const std::map<TenantId, EventReplay> before = replays_;
    for (const auto& [tenant, replay] : before) {
      source.End(tenant);
      replays_[tenant] = {};
      source.Begin(tenant);
    }
    walk();
    for (const auto& [tenant, replay] : before) {
      EXPECT_EQ(replay.blocks(), replays_[tenant].blocks());
      counts["blocks told"] += static_cast<int64_t>(replay.blocks().size());
    }
  }

  RequestSpec AnySpec() {
    RequestSpec spec;
    spec.prompt_tokens = Between(1, OneIn(5) ? config_.max_model_len / 2 : 8);
    spec.max_tokens = Between(1, OneIn(8) ? config_.max_model_len : 12);
    spec.arrival_ns = sim_.now_ns;
    spec.priority = OneIn(4) ? Between(-1, 1) : 0;
    if (OneIn(10)) spec.deadline_ns = sim_.now_ns + Between(0, 200) * kMs;
    if (OneIn(5)) spec.stop_token_ids = {Between(0, 49), Between(0, 49)};
    spec.tenant = AnyTenant();
    spec.bypass_cache = OneIn(15);
    if (config_.step_guesses > 0) {
      spec.max_guesses = Between(1, 12);
      spec.max_tokens = Between(1, std::max(12, config_.max_model_len / 2));
    }
    return spec;
  }

  bool Full() { return sim_.load().waiting >= config_.max_num_queued_reqs; }

  void Speak() {
    if (Full()) return;
    RequestSpec spec = AnySpec();
    spec.session = AnyName();
    if (calm_) spec.bypass_cache = false;
    Remember(sim_.Add(spec));
  }

  // Sends a session's conversation as a request without a session.
  void Ask() {
    if (Full()) return;
    RequestSpec spec = AnySpec();
    std::vector<int32_t> prompt = sim_.SessionTokens(spec.tenant, AnyName());
    prompt.resize(std::min<size_t>(prompt.size(), config_.max_model_len / 2));
    for (int32_t i = Between(1, 4); i > 0; --i) prompt.push_back(Between(0, 49));
    if (!OneIn(4)) spec.prompt = prompt;
    const auto size = static_cast<int64_t>(prompt.size());
    if (!sim_.scheduler().Fits(std::max<int64_t>(size, spec.prompt_tokens), spec.max_tokens))
      return;
    Remember(sim_.Add(spec));
  }

  void Remember(RequestId id) {
    if (id != 0) last_id_ = id;
    counts["turns"] += id != 0;
  }

  void ChangeSession() {
    SessionStore& store = sim_.scheduler().sessions();
    const TenantId tenant = AnyTenant();
    const std::string name = AnyName();
    const int64_t now_ns = sim_.now_ns;
    std::vector<int32_t> tokens = sim_.SessionTokens(tenant, name);
    const int32_t position = Between(0, static_cast<int32_t>(tokens.size()) + 1);
    switch (Between(0, 9)) {
      case 0:
      case 1:
        if (store.Create(tenant, name, {}, now_ns).ok()) sim_.SetSessionTokens(tenant, name, {});
        break;
      case 2: {
        const std::string fork = AnyName();
        if (!store.Fork(tenant, name, fork, position, now_ns).ok()) break;
        ++counts["forks"];
        std::vector<int32_t> taken(tokens.begin(), tokens.begin() + position);
        sim_.SetSessionTokens(tenant, fork, taken);
        break;
      }
      case 3:
        if (!store.Truncate(tenant, name, position, now_ns).ok()) break;
        ++counts["truncations"];
        tokens.resize(position);
        sim_.SetSessionTokens(tenant, name, tokens);
        break;
      case 4: counts["offloads"] += store.Offload(tenant, name, now_ns).ok(); break;
      case 5: counts["prefetches"] += store.Prefetch(tenant, name, now_ns).ok(); break;
      case 6: counts["pins"] += store.Pin(tenant, name, now_ns).ok(); break;
      case 7: static_cast<void>(store.Unpin(tenant, name, now_ns)); break;
      case 8: sim_.CheckSession(tenant, name); break;
      default:
        if (OneIn(4)) counts["closed"] += store.Close(tenant, name).ok();
    }
  }

  void Disturb() {
    if (last_id_ == 0) return;
    const auto id = static_cast<RequestId>(Between(std::max<int32_t>(1, last_id_ - 6), last_id_));
    const int32_t dice = Between(0, 9);
    if (dice < 4) {
      const auto said = static_cast<int32_t>(sim_.outcome(id).tokens.size());
      // The session keeps the prompt. Before the first token, part of it may not be computed yet.
      const bool stop = OneIn(2) && (said > 0 || !calm_);
      sim_.Cancel(id, stop ? FinishReason::kStopText : FinishReason::kCancelled,
                  stop ? Between(0, said) : kKeepAll);
    } else if (calm_) {
      return;
    } else if (dice < 9) {
      sim_.scheduler().SetPaused(id, OneIn(2));
    } else if (OneIn(4)) {
      sim_.KillWorker();
      ++counts["deaths"];
    } else if (OneIn(4)) {
      const FlushedCache flushed = sim_.scheduler().Flush({.sessions = OneIn(2)});
      counts["flushed"] += flushed.blocks + flushed.pages;
    }
  }

  void Quiesce() {
    CheckEvents();
    sim_.scheduler().OnPagesReady(config_.num_pages);
    for (RequestId id = 1; id <= last_id_; ++id) sim_.scheduler().SetPaused(id, false);
    SessionStore& store = sim_.scheduler().sessions();
    for (const TenantId tenant : {0, 1}) {
      for (const SessionInfo& info : store.List(tenant, "", 100)) {
        ASSERT_TRUE(store.Unpin(tenant, info.name, sim_.now_ns).ok());
      }
    }
    sim_.RunToEnd(depth_);
    for (const TenantId tenant : {0, 1}) {
      for (const SessionInfo& info : store.List(tenant, "", 100)) {
        sim_.CheckSession(tenant, info.name);
        ASSERT_TRUE(store.Close(tenant, info.name).ok());
      }
    }
    sim_.RunCopies();
    sim_.ExpectIdle();
    EXPECT_EQ(sim_.scheduler().cache_stats().host_pages_used, 0);
    CheckPagesByFlushes();
    const TieringStats& stats = sim_.scheduler().tiering_stats();
    const CacheStats cache = sim_.scheduler().cache_stats();
    counts["stored"] += stats.stored_blocks;
    counts["loaded"] += stats.loaded_blocks;
    counts["failed jobs"] += stats.failed_jobs;
    counts["late jobs"] += stats.late_jobs;
    counts["corrupt pages"] += stats.corrupt_pages;
    counts["declined"] += stats.restores_declined;
    counts["restores late"] += stats.restores_late;
    counts["stores given up"] += stats.stores_given_up;
    counts["kept lost"] += cache.kept_lost;
    counts["found"] += cache.device_tokens;
    counts["restored"] += cache.host_tokens;
    counts["clones"] += sim_.num_clones();
  }

  void CheckOutputs() {
    for (RequestId id = 1; id <= last_id_; ++id) {
      const Outcome& outcome = sim_.outcome(id);
      ++counts[Name(outcome.finish.residency.outcome)];
      counts["guesses"] += outcome.finish.usage.guessed_tokens;
      counts["right guesses"] += outcome.finish.usage.accepted_guesses;
      if (calm_) {
        EXPECT_EQ(outcome.finish.residency.recomputed_tokens, 0) << "request " << id;
      }
      std::vector<int32_t> tokens = Expect(id, sim_.spec(id), model_, config_.max_model_len).tokens;
      ASSERT_LE(outcome.tokens.size(), tokens.size());
      tokens.resize(outcome.tokens.size());
      EXPECT_EQ(outcome.tokens, tokens) << "request " << id;
    }
  }

  const bool calm_;
  std::mt19937_64 random_;
  const SchedulerConfig config_;
  ShadowModel model_;
  const int32_t depth_;
  SimulatedEngine sim_;
  std::map<TenantId, EventReplay> replays_;  // of the tenants that have a reader
  std::map<TenantId, int64_t> bounds_;       // in pages
  std::map<TenantId, int64_t> pages_;        // by the figures of each tenant
  std::vector<TenantStats> figures_;
  RequestId last_id_ = 0;
  int32_t ready_pages_ = 0;  // told so far, where pages arrive
};

TEST(SchedulerSessionRandomTest, EveryRequestGivesItsOwnTokensAndEverySessionKeepsThem) {
  int64_t num_steps = 0;
  std::map<std::string, int64_t> counts;
  uint64_t seed = random_steps.only_seed != 0 ? random_steps.only_seed : 1;
  for (;; ++seed) {
    SCOPED_TRACE("replay with --seed=" + std::to_string(seed));
    Conversations program(seed);
    program.Run();
    num_steps += program.num_steps;
    for (const auto& [name, count] : program.counts) counts[name] += count;
    if (testing::Test::HasFailure() || random_steps.only_seed != 0 ||
        num_steps >= random_steps.steps)
      break;
  }
  std::cout << num_steps << " steps, last seed " << seed;
  for (const auto& [name, count] : counts) std::cout << ", " << name << ": " << count;
  std::cout << "\n";
  if (testing::Test::HasFailure() || random_steps.only_seed != 0) return;
  // The programs reach the cases that they exist for.
  for (const char* name : {"restoring",
                           "forks",
                           "truncations",
                           "offloads",
                           "prefetches",
                           "pins",
                           "deaths",
                           "stored",
                           "loaded",
                           "failed jobs",
                           "late jobs",
                           "corrupt pages",
                           "declined",
                           "restores late",
                           "stores given up",
                           "kept lost",
                           "found",
                           "restored",
                           "clones",
                           "events",
                           "blocks told",
                           "flushed",
                           "at the bound",
                           "above the bound",
                           "pages by events",
                           "pages by flushes",
                           "guesses",
                           "right guesses",
                           Name(Residency::Outcome::kDevice),
                           Name(Residency::Outcome::kRestored),
                           Name(Residency::Outcome::kPartial),
                           Name(Residency::Outcome::kRecomputed)}) {
    EXPECT_GT(counts[name], 0) << name;
  }
}

// Forks, cuts, copies, cancels and stops never make a session compute a token's KV twice. So its
// bits are those of the first computation.
TEST(SchedulerSessionRandomTest, ComputesNothingTwiceWhereThereIsRoom) {
  std::map<std::string, int64_t> counts;
  int64_t num_steps = 0;
  uint64_t seed = random_steps.only_seed != 0 ? random_steps.only_seed : 1;
  for (;; ++seed) {
    SCOPED_TRACE("replay with --seed=" + std::to_string(seed));
    Conversations program(seed, /*calm=*/true);
    program.Run();
    num_steps += program.num_steps;
    for (const auto& [name, count] : program.counts) counts[name] += count;
    if (testing::Test::HasFailure() || random_steps.only_seed != 0 ||
        num_steps >= random_steps.steps / 16)
      break;
  }
  if (testing::Test::HasFailure() || random_steps.only_seed != 0) return;
  for (const char* name :
       {"forks", "truncations", "offloads", "stored", "loaded", "restored", "clones",
        Name(Residency::Outcome::kDevice), Name(Residency::Outcome::kRestored)}) {
    EXPECT_GT(counts[name], 0) << name;
  }
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  quire::ReadRandomSteps(argc, argv);
  return RUN_ALL_TESTS();
}

// One class builds the server, one lives in it.
#include "tests/simulation/server_world.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/internal/cordz_functions.h"
#include "engine/engine.h"
#include "engine/schedule/scheduler.h"
#include "server/call/connection_table.h"
#include "server/call/text_pool.h"
#include "server/generate/call_opening.h"
#include "server/generate/generate_resources.h"
#include "server/generate/generation_stream.h"
#include "server/generate/output_shards.h"
#include "server/generate/stall_watch.h"
#include "server/generate/stream_table.h"
#include "server/identity/open_door.h"
#include "server/metrics/metrics.h"
#include "server/structured/guide_maker.h"
#include "tests/simulation/conversations.h"
#include "tests/simulation/virtual_client.h"
#include "tests/simulation/virtual_threads.h"
#include "tests/simulation/virtual_workers.h"

namespace quire {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;

int64_t checked_turns = 0;
uint64_t living_seed = 0;

void PrintSeed(int) {
  std::fprintf(stderr, "seed %llu failed; replay it with --seed=%llu --trace\n",
               static_cast<unsigned long long>(living_seed),
               static_cast<unsigned long long>(living_seed));
}

// A world as its seed decides it before anything runs.
struct WorldPlan {
  SchedulerConfig config;
  EngineLimits limits;
  ShadowModel model;
  WorkerManners workers;
  VirtualThreads::Chances chances;
  int64_t arrivals = 0;
  int64_t arrival_ns = 0;  // between two, at most twice that
  int death_one_in = 0;    // of arrivals; 0: none
  bool dies_for_good = false;
  bool drains = false;  // with calls under way
  int jump_one_in = 0;
  double slow_reader_seconds = 1;
  int64_t stream_buffer_bytes = 256;
  int shards = 1;
  bool short_leases = false;
};

WorldPlan PlanOf(Dice& dice) {
  WorldPlan plan;
  SchedulerConfig& config = plan.config;
  config.block_size = dice.Of(std::array{1, 2, 4, 8, 16});
  config.max_model_len = static_cast<int32_t>(dice.Between(16, 120));
  const int32_t blocks = config.max_model_len / config.block_size + 1;
  config.num_blocks = 2 + blocks + static_cast<int32_t>(dice.Between(0, blocks * 3));
  config.max_num_seqs = static_cast<int32_t>(dice.Between(1, 6));
  config.max_num_batched_tokens =
      static_cast<int32_t>(dice.OneIn(3) ? dice.Between(1, 8) : dice.Between(8, 64));
  config.max_num_queued_reqs = static_cast<int32_t>(dice.Between(4, 24));
  config.growth_horizon = static_cast<int32_t>(dice.OneIn(2) ? 0 : dice.Between(0, 32));
  config.prefix_cache = !dice.OneIn(8);
  config.pace_prompts = dice.OneIn(4);
  config.num_pages =
      static_cast<int32_t>(dice.OneIn(6) ? 0 : dice.Between(1, config.num_blocks * 2));
  plan.short_leases = dice.OneIn(4);
  config.sessions = {.max_sessions = static_cast<int32_t>(dice.Between(3, 12)),
                     .max_sessions_per_tenant = static_cast<int32_t>(dice.Between(2, 8)),
                     .max_session_tokens = dice.OneIn(2) ? 1000 : 100,
                     .max_model_len = config.max_model_len,
                     .default_ttl_seconds = plan.short_leases ? 0.3 : 1e6,
                     .max_ttl_seconds = 1e6,
                     .default_idle_offload_seconds = dice.OneIn(2) ? 0 : 0.02,
                     .max_pinned_share = dice.OneIn(2) ? 0.0 : 0.3};
  config.tiering = {.block_bytes = 8 * config.block_size,
                    .low_watermark = dice.OneIn(2) ? 0.1 : 0.5,
                    .high_watermark = 0.6,
                    .job_timeout_seconds = dice.OneIn(3) ? 0.01 : 100};
  plan.model = {.vocab_size = 50, .eos_token = 7};
  plan.model.eos_probability = dice.Of(std::array{0.0, 0.03, 0.3});
  plan.model.nan_probability = dice.OneIn(5) ? 0.01 : 0.0;
  config.vocab_size = plan.model.vocab_size;
  plan.limits = {.max_num_queued_reqs = config.max_num_queued_reqs,
                 .max_num_queued_tokens = dice.OneIn(3) ? 200 : 100'000,
                 .max_model_len = config.max_model_len,
                 .vocab_size = plan.model.vocab_size};
  WorkerManners& workers = plan.workers;
  workers.depth = static_cast<int>(dice.Between(1, 3));
  workers.step_ns = dice.Of(std::array{kMs / 10, kMs, 10 * kMs});
  workers.copy_ns = dice.Of(std::array{kMs / 10, kMs, 20 * kMs});
  workers.stall_one_in = dice.OneIn(3) ? 50 : 0;
  workers.restart_ns = dice.Of(std::array{kMs, 100 * kMs, kSecond});
  workers.faults = {.seed = static_cast<uint64_t>(dice.Between(1, 1'000'000)),
                    .fail = dice.OneIn(3) ? 0.2 : 0.0,
                    .corrupt = dice.OneIn(3) ? 0.1 : 0.0};
  plan.chances.switch_one_in = dice.Of(std::array{2, 8, 64});
  plan.chances.early_wake_one_in = dice.Of(std::array{0, 16, 256});
  plan.arrivals = dice.OneIn(10) ? dice.Between(300, 1000) : dice.Between(20, 200);
  plan.arrival_ns = dice.Of(std::array{kMs, 5 * kMs, 50 * kMs});
  plan.death_one_in = dice.OneIn(2) ? 0 : static_cast<int>(dice.Between(20, 100));
  plan.dies_for_good = dice.OneIn(12);
  plan.drains = dice.OneIn(4);
  plan.jump_one_in = dice.OneIn(3) ? 20 : 0;
  plan.slow_reader_seconds = dice.Of(std::array{0.05, 1.0});
  plan.stream_buffer_bytes = dice.Of(std::array{64, 256, 65536});
  plan.shards = static_cast<int>(dice.Between(1, 3));
  plan.short_leases |= plan.jump_one_in > 0;  // a jump ends leases too
  return plan;
}

class ShardSink final : public OutputSink {
 public:
  // `on_token` hears of each token's request, on the engine's thread.
  ShardSink(int threads, ConnectionTable& connections, std::function<void(RequestId)> on_token)
      : shards_(threads), on_token_(std::move(on_token)) {
    shards_.SetConnections(&connections);
  }
  void OnTurnStarts(std::span<const TurnStart> starts) override { shards_.OnTurnStarts(starts); }
  void OnReadings(std::span<const ReadingEvent> readings,
                  std::span<const uint32_t> words) override {
    shards_.OnReadings(readings, words);
  }
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    for (const TokenEvent& token : tokens) on_token_(token.id);
    shards_.OnStep(tokens, finishes);
  }

 private:
  OutputShards shards_;
  const std::function<void(RequestId)> on_token_;
};

FrontOptions OptionsOf(const WorldPlan& plan) {
  FrontOptions options;
  options.stream_buffer_bytes = plan.stream_buffer_bytes;
  options.slow_reader_timeout_seconds = plan.slow_reader_seconds;
  options.log_requests = false;
  return options;
}

ServingModel ModelOf(const WorldPlan& plan) {
  ServingModel model;
  model.setup.scheduler = plan.config;
  model.setup.limits = plan.limits;
  model.setup.memory.num_blocks = plan.config.num_blocks;
  model.setup.memory.block_size = plan.config.block_size;
  return model;
}

// The server, from its streams down to its engine, over workers of the world.
struct VirtualServer {
  VirtualServer(Agenda& agenda, Dice& dice, VirtualWorkers::Counts& counts, const WorldPlan& plan,
                std::function<void(RequestId)> on_token)
      : options(OptionsOf(plan)),
        model(ModelOf(plan)),
        stalls(static_cast<int64_t>(plan.slow_reader_seconds * 1e9)),
        sink(plan.shards, connections, std::move(on_token)) {
    auto group = std::make_unique<VirtualWorkers>(
        VirtualWorkers::Surroundings{agenda, dice, counts}, plan.config, plan.model, plan.workers);
    workers = group.get();
    engine = std::make_unique<Engine>(plan.config, plan.limits, std::move(group), &sink,
                                      std::vector<int32_t>());
    resources.emplace(GenerateResources{.calls = calls,
                                        .model = model,
                                        .engine = *engine,
                                        .drain = drain,
                                        .streams = streams,
                                        .stalls = stalls,
                                        .guides = guides,
                                        .archive = nullptr,
                                        .key = 1});
  }

  const FrontOptions options;
  const ServingModel model;
  ServerMetrics metrics{"simulation"};
  ConnectionTable connections{{}};
  TextPool text_pool{1, 8, 1 << 20};
  DrainState drain;
  const OpenDoor door{true};
  const CallResources calls{.options = options,
                            .door = door,
                            .metrics = metrics,
                            .connections = connections,
                            .text_pool = text_pool};
  StreamTable streams{1 << 20};
  StallWatch stalls;
  GuideMaker guides{&model, &metrics.guides(), nullptr};
  ShardSink sink;
  VirtualWorkers* workers = nullptr;  // the engine's
  std::unique_ptr<Engine> engine;
  std::optional<GenerateResources> resources;
};

class World {
 public:
  World(uint64_t seed, bool trace)
      : trace_(trace),
        dice_(seed),
        plan_(PlanOf(dice_)),
        threads_(seed, plan_.chances),
        agenda_(threads_),
        talks_(agenda_, dice_,
               {.may_expire = plan_.short_leases,
                .vocab_size = plan_.model.vocab_size,
                .max_model_len = plan_.config.max_model_len},
               [this](const std::string& line) { Note(line); }) {
    server_ = std::make_unique<VirtualServer>(agenda_, dice_, report_workers_, plan_,
                                              [this](RequestId id) { CheckWanted(id); });
    talks_.SetEngine(server_->engine.get());
  }

  WorldReport Run() {
    Live();
    if (!testing::Test::HasFailure()) Quiesce();
    report_.steps = report_workers_.steps;
    report_.actions = agenda_.num_actions();
    report_.switches = threads_.num_switches();
    report_.virtual_ns = threads_.now_ns() - plan_.chances.start_ns;
    return report_;
  }

 private:
  struct Call {
    std::unique_ptr<VirtualClient> client;
    std::weak_ptr<GenerationStream> stream;
    RequestId id = 0;
    Conversation* talk = nullptr;   // of a turn
    std::vector<int32_t> appended;  // by the turn, if it ends well
  };

  void Note(const std::string& line) {
    for (const char letter : line) {
      report_.digest = (report_.digest ^ static_cast<unsigned char>(letter)) * 0x100000001B3u;
    }
    report_.digest += static_cast<uint64_t>(agenda_.now_ns());
    if (!trace_) return;
    std::fprintf(stderr, "%12.6f %s\n",
                 static_cast<double>(agenda_.now_ns() - plan_.chances.start_ns) * 1e-9,
                 line.c_str());
  }

  // Arrivals and disturbances, until all have come or something is wrong.
  void Live() {
    for (int64_t i = 0; i < plan_.arrivals && !testing::Test::HasFailure(); ++i) {
      const int64_t next_ns = agenda_.now_ns() + dice_.Between(0, 2 * plan_.arrival_ns);
      bool due = false;
      agenda_.At(next_ns, [&due] { due = true; });
      agenda_.RunUntil([&due] { return due; }, kMostActions);
      Arrive();
      Disturb();
    }
  }

  void Arrive() {
    const int64_t dice = dice_.Between(0, 99);
    if (dice < 35) return Ask(nullptr);
    Conversation* const talk = talks_.AnyIdle();
    if (talk == nullptr) return;
    if (dice < 75) return Ask(talk);
    talks_.Operate(*talk);
  }

  void Ask(Conversation* talk) {
    RequestSpec spec;
    spec.prompt_tokens =
        static_cast<int32_t>(dice_.Between(1, dice_.OneIn(4) ? plan_.config.max_model_len : 10));
    spec.max_tokens =
        static_cast<int32_t>(dice_.Between(1, dice_.OneIn(4) ? plan_.config.max_model_len : 10));
    spec.min_tokens = dice_.OneIn(4) ? static_cast<int32_t>(dice_.Between(0, spec.max_tokens)) : 0;
    spec.priority = dice_.OneIn(3) ? static_cast<int32_t>(dice_.Between(-1, 1)) : 0;
    spec.tenant = talk != nullptr ? talk->tenant : static_cast<TenantId>(dice_.Between(0, 1));
    spec.bypass_cache = dice_.OneIn(10);
    spec.prompt = Words(spec.prompt_tokens);
    if (dice_.OneIn(4)) spec.stop_token_ids = {static_cast<int32_t>(dice_.Between(0, 49))};
    auto request = std::make_unique<Request>();
    request->prompt = spec.prompt;
    request->sampling.row.seed = ++num_requests_;
    request->sampling.max_tokens = spec.max_tokens;
    request->sampling.min_tokens = spec.min_tokens;
    request->sampling.eos_token_ids = {plan_.model.eos_token};
    request->sampling.stop_token_ids = spec.stop_token_ids;
    if (dice_.OneIn(4)) spec.grammar = AnyGrammar();
    request->guide = spec.grammar;
    request->priority = spec.priority;
    request->bypass_cache = spec.bypass_cache;
    if (talk != nullptr) {
      spec.prompt.insert(spec.prompt.begin(), talk->tokens.begin(), talk->tokens.end());
      request->session_turn =
          TurnRequest{.session = talk->name,
                      .expected_position = static_cast<int64_t>(talk->tokens.size()),
                      .create_session = true};
    }
    spec.prompt_tokens = static_cast<int32_t>(spec.prompt.size());
    Send(std::move(request), spec, talk);
  }

  // States in a ring, each with some tokens and perhaps the end.
  std::shared_ptr<const ScriptedGrammar> AnyGrammar() {
    GuideScript script;
    script.moves.resize(4);
    for (auto& moves : script.moves) {
      for (int i = 0; i < 3; ++i) {
        moves[static_cast<int32_t>(dice_.Between(8, 49))] =
            static_cast<size_t>(dice_.Between(0, 3));
      }
      if (dice_.OneIn(3)) moves[plan_.model.eos_token] = 0;
    }
    return std::make_shared<const ScriptedGrammar>(std::move(script));
  }

  // Tokens of its own, or the beginning of one of few texts.
  std::vector<int32_t> Words(int32_t count) {
    std::vector<int32_t> words(static_cast<size_t>(count));
    const bool shared = dice_.OneIn(2);
    uint64_t x = shared ? static_cast<uint64_t>(dice_.Between(1, 3)) : 100 + num_requests_;
    for (int32_t& word : words) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      word = static_cast<int32_t>((x >> 33) % static_cast<uint64_t>(plan_.model.vocab_size));
    }
    return words;
  }

  ClientManners AnyManners() {
    ClientManners manners;
    using Shape = GenerationStream::Shape;
    if (dice_.OneIn(4)) manners.shape = dice_.OneIn(2) ? Shape::kHeld : Shape::kUnary;
    manners.read_ns = dice_.Of(std::array{kMs / 100, kMs / 100, kMs, 20 * kMs});
    if (dice_.OneIn(12)) manners.reads = dice_.Between(0, 5);
    if (dice_.OneIn(6)) manners.leaves_ns = agenda_.now_ns() + dice_.Between(0, 100 * kMs);
    if (dice_.OneIn(6)) manners.deadline_ns = agenda_.now_ns() + dice_.Between(1, 200 * kMs);
    manners.keeps_time = !dice_.OneIn(3);
    if (dice_.OneIn(10)) manners.max_reply_bytes = dice_.Between(0, 100);
    return manners;
  }

  void Send(std::unique_ptr<Request> request, const RequestSpec& spec, Conversation* talk) {
    const ClientManners manners = AnyManners();
    ExpectedOutcome expected =
        Expect(request->sampling.row.seed, spec, plan_.model, plan_.config.max_model_len);
    Call& call = calls_.emplace_back();
    call.talk = talk;
    if (talk != nullptr) {
      talk->busy = true;
      call.appended.assign(spec.prompt.begin() + static_cast<std::ptrdiff_t>(talk->tokens.size()),
                           spec.prompt.end());
      call.appended.insert(call.appended.end(), expected.tokens.begin(), expected.tokens.end());
    }
    call.client = std::make_unique<VirtualClient>(
        agenda_, dice_, manners, std::move(expected),
        [this, &call](VirtualClient& client) { Closed(call, client); });
    auto caller = std::make_shared<Caller>(Caller{.tenant = spec.tenant});
    const auto stream = std::make_shared<GenerationStream>(
        &*server_->resources, call.client.get(), manners.shape,
        GenerationStream::Origin{caller, 0, manners.deadline_ns});
    call.stream = stream;
    call.id = stream->id();
    clients_[call.id] = call.client.get();
    ++open_;
    Note("call " + std::to_string(call.id) + (talk != nullptr ? " of " + talk->name : "") +
         ", prompt " + std::to_string(spec.prompt_tokens) + ", max " +
         std::to_string(spec.max_tokens));
    call.client->Begin(stream);
    EXPECT_TRUE(Register(&*server_->resources, stream, "").ok());
    std::vector<std::unique_ptr<Request>> requests;
    requests.push_back(std::move(request));
    AwaitCaller();
    caller_ = std::thread([this, stream, requests = std::move(requests)]() mutable {
      SubmitToEngine(&*server_->resources, {stream}, std::move(requests), {.text = false});
    });
    if (!dice_.OneIn(4)) AwaitCaller();
  }

  void AwaitCaller() {
    if (caller_.joinable()) caller_.join();
  }

  void Closed(Call& call, VirtualClient& client) {
    --open_;
    const std::string end = client.finish().has_value()
                                ? Name(client.finish()->reason)
                                : absl::StatusCodeToString(client.status().code());
    ++report_.counts[end];
    Note("end " + std::to_string(call.id) + " " + end + " after " +
         std::to_string(client.tokens().size()) + " tokens");
    CheckFailure(client);
    Conversation* const talk = call.talk;
    if (talk == nullptr) return;
    if (!client.finish().has_value()) return talks_.Resolve(*talk, std::move(call.appended));
    talk->busy = false;
    talk->exists = true;
    talk->tokens.insert(talk->tokens.end(), call.appended.begin(), call.appended.end());
    EXPECT_EQ(client.finish()->position, static_cast<int32_t>(talk->tokens.size()));
  }

  // The engine computes no more for a call that is over, once it had the time to hear of it: a
  // cancel that is lost shows nowhere else.
  void CheckWanted(RequestId id) {
    const int64_t unwanted_ns = clients_.at(id)->unwanted_ns();
    if (unwanted_ns < last_jump_ns_) return;
    EXPECT_LE(agenda_.now_ns() - kMs, unwanted_ns) << "call " << id << " is over";
  }

  // A failure has a cause in this world.
  void CheckFailure(const VirtualClient& client) {
    if (client.finish().has_value()) return;
    const absl::Status& status = client.status();
    const bool numeric = client.expected().reason == FinishReason::kNumeric;
    if (status.code() == absl::StatusCode::kInternal) {
      EXPECT_TRUE(numeric || report_workers_.deaths >= 3 || died_for_good_) << status;
    }
    if (status.code() == absl::StatusCode::kNotFound) {
      EXPECT_TRUE(plan_.short_leases) << status;
    }
    if (status.code() == absl::StatusCode::kUnknown) ADD_FAILURE() << status;
  }

  void Disturb() {
    if (plan_.death_one_in > 0 && dice_.OneIn(plan_.death_one_in)) {
      died_for_good_ |= plan_.dies_for_good && dice_.OneIn(3);
      Note(died_for_good_ ? "workers die for good" : "workers die");
      server_->workers->Die(died_for_good_);
    }
    if (dice_.OneIn(40)) {
      server_->engine->FlushCache({.sessions = dice_.OneIn(2)}, [](const FlushedCache&) {});
      ++report_.counts["flushes"];
    }
    if (dice_.OneIn(30)) AbortOne();
    if (dice_.OneIn(30)) server_->engine->View([](const SchedulerView&) {});
    if (dice_.OneIn(60)) SetTenants();
    if (plan_.jump_one_in > 0 && dice_.OneIn(plan_.jump_one_in)) {
      threads_.JumpSteadyClock(dice_.Of(std::array{10 * kMs, kSecond, 3600 * kSecond}));
      last_jump_ns_ = agenda_.now_ns();
      threads_.JumpWallClock(dice_.Between(-7200, 7200) * kSecond);
      ++report_.counts["clock jumps"];
    }
  }

  void AbortOne() {
    if (calls_.empty()) return;
    const int64_t last = static_cast<int64_t>(calls_.size()) - 1;
    const auto stream =
        calls_[static_cast<size_t>(dice_.Between(std::max<int64_t>(0, last - 8), last))]
            .stream.lock();
    if (stream == nullptr) return;
    Note("abort " + std::to_string(stream->id()));
    stream->Abort();
  }

  void SetTenants() {
    TenantTable table;
    for (const TenantId tenant : {0, 1}) {
      TenantLimits limits;
      limits.weight = dice_.Of(std::array{0.5, 1.0, 4.0});
      if (dice_.OneIn(3)) limits.max_running_requests = static_cast<int32_t>(dice_.Between(1, 4));
      if (dice_.OneIn(3)) limits.max_queued_requests = static_cast<int32_t>(dice_.Between(1, 8));
      if (dice_.OneIn(3)) limits.max_host_kv_tokens = dice_.Between(0, 60);
      table.tenants.emplace_back(tenant, limits);
    }
    EXPECT_TRUE(server_->engine->SetTenants(table).ok());
  }

  // Nothing new comes: every call ends by itself, and then nothing is in use.
  void Quiesce() {
    Note("no more arrivals");
    AwaitCaller();
    if (plan_.drains) {
      server_->drain.Set(true);
      server_->engine->StartDrain();
      if (dice_.OneIn(2)) server_->engine->CancelAll(FinishReason::kDraining);
    }
    // A request may have to wait for the blocks of a pin as long as that lasts.
    talks_.UnpinAll();
    const bool ended =
        agenda_.RunUntil([this] { return open_ == 0 && talks_.AllIdle(); }, kMostActions);
    EXPECT_TRUE(ended) << open_ << " calls do not end";
    EXPECT_TRUE(server_->engine->Idle());
    // The engine's last word on a call may still be on its way to the stream, which lives until
    // then.
    agenda_.RunUntil(
        [this] {
          return std::ranges::all_of(calls_, [](const Call& c) { return c.stream.expired(); });
        },
        kMostActions);
    for (const Call& call : calls_) EXPECT_TRUE(call.stream.expired()) << "stream " << call.id;
    EXPECT_TRUE(server_->streams.All(std::nullopt).empty());
    for (Conversation& talk : talks_.all()) talks_.Close(talk);
    agenda_.RunUntil([this] { return talks_.AllIdle(); }, kMostActions);
    ExpectNothingUsed();
    const EngineStats stats = server_->engine->Stats();
    EXPECT_EQ(static_cast<int64_t>(stats.step_sizes.tokens), report_workers_.retired_tokens);
    Count(stats);
    server_.reset();
  }

  // Copies and steps that were under way may end first.
  void ExpectNothingUsed() {
    EngineStats stats;
    for (int looks = 0; looks < 100; ++looks) {
      server_->engine->FlushCache({.sessions = true}, [](const FlushedCache&) {});
      bool due = false;
      agenda_.In(kSecond, [&due] { due = true; });
      agenda_.RunUntil([&due] { return due; }, kMostActions);
      stats = server_->engine->Stats();
      // Cached, or of a step that stalls.
      const bool held = stats.load.free_blocks < stats.load.total_blocks ||
                        stats.load.cached_blocks > 0 || stats.cache.host_pages_used > 0;
      if (stats.tiering.jobs_in_flight == 0 && !held) break;
    }
    EXPECT_EQ(stats.load.running, 0);
    EXPECT_EQ(stats.load.waiting, 0);
    EXPECT_EQ(stats.load.paused, 0);
    EXPECT_EQ(stats.load.restoring, 0);
    EXPECT_EQ(stats.load.waiting_tokens, 0);
    EXPECT_EQ(stats.load.tokens_in_flight, 0);
    EXPECT_EQ(stats.load.free_blocks, stats.load.total_blocks);
    EXPECT_EQ(stats.load.cached_blocks, 0);
    EXPECT_EQ(stats.cache.sessions, 0);
    EXPECT_EQ(stats.cache.session_tokens, 0);
    EXPECT_EQ(stats.cache.host_pages_used, 0);
    EXPECT_TRUE(died_for_good_ || stats.tiering.jobs_in_flight == 0);
  }

  void Count(const EngineStats& stats) {
    auto& counts = report_.counts;
    for (const auto& [name, count] : talks_.counts()) counts[name] += count;
    counts["deaths"] += report_workers_.deaths;
    counts["lost steps"] += report_workers_.lost_steps;
    counts["lost copies"] += report_workers_.lost_copies;
    counts["preemptions"] += static_cast<int64_t>(stats.preemptions);
    counts["stored blocks"] += stats.tiering.stored_blocks;
    counts["loaded blocks"] += stats.tiering.loaded_blocks;
    counts["failed copies"] += stats.tiering.failed_jobs;
    counts["late copies"] += stats.tiering.late_jobs;
    counts["corrupt pages"] += stats.tiering.corrupt_pages;
    counts["tokens"] += static_cast<int64_t>(stats.generated_tokens);
    counts["calls"] += static_cast<int64_t>(calls_.size());
  }

  static constexpr int64_t kMostActions = 200'000;  // of one wait: beyond it, something hangs

  const bool trace_;
  Dice dice_;
  const WorldPlan plan_;
  VirtualThreads threads_;
  Agenda agenda_;
  Conversations talks_;
  VirtualWorkers::Counts report_workers_;
  WorldReport report_;
  std::deque<Call> calls_;
  std::unordered_map<RequestId, const VirtualClient*> clients_;  // never walked
  int64_t last_jump_ns_ = 0;
  uint64_t num_requests_ = 0;
  int64_t open_ = 0;
  std::thread caller_;  // submits a call, while its client and the engine go on
  bool died_for_good_ = false;
  std::unique_ptr<VirtualServer> server_;
};

}  // namespace

WorldReport RunServerWorld(uint64_t seed, bool trace) {
  // Abseil samples one of 50,000 cords, at random by an address, and asks for the time of a sample
  // by the cycle counter of the CPU. The payload of a status is a cord.
  absl::cord_internal::set_cordz_mean_interval(0);
  living_seed = seed;
  std::signal(SIGABRT, PrintSeed);
  const int64_t turns_before = checked_turns;
  World world(seed, trace);
  WorldReport report = world.Run();
  if (testing::Test::HasFailure()) {
    // A world that broke its rules cannot be taken down in order.
    PrintSeed(0);
    std::fflush(nullptr);
    _exit(1);
  }
  report.turns = checked_turns - turns_before;
  return report;
}

}  // namespace quire

// The linker puts this in the place of Scheduler::OnTimer, which the engine calls in each turn of
// its loop.
extern "C" void __real__ZN5quire9Scheduler7OnTimerElRNS_15SchedulerEventsE(
    quire::Scheduler* scheduler, int64_t now_ns, quire::SchedulerEvents& events);
extern "C" void __wrap__ZN5quire9Scheduler7OnTimerElRNS_15SchedulerEventsE(
    quire::Scheduler* scheduler, int64_t now_ns, quire::SchedulerEvents& events) {
  __real__ZN5quire9Scheduler7OnTimerElRNS_15SchedulerEventsE(scheduler, now_ns, events);
  scheduler->CheckInvariants();
  ++quire::checked_turns;
}

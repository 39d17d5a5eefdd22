// The whole engine on a real checkpoint: a request's tokens depend on the request alone, not on its
// neighbours, the chunks of its prompt, the number of its preemptions, or the number of ranks (one
// or two).
// Covers engine/worker/rank/worker.cc
#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/engine_workers.h"
#include "gtest/gtest.h"
#include "tests/engine/model/checkpoints.h"

namespace quire {
namespace {

using Tokens = std::map<RequestId, std::vector<int32_t>>;
std::string DirOf(const std::string& name) {
  return QUIRE_SOURCE_DIR "/tests/testdata/models/" + name;
}

class CollectingSink : public OutputSink {
 public:
  void OnTurnStarts(std::span<const TurnStart>) override {}
  void OnReadings(std::span<const ReadingEvent>, std::span<const uint32_t>) override {}
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    std::lock_guard lock(mutex_);
    for (const TokenEvent& event : tokens) tokens_[event.id].push_back(event.token);
    for (const FinishEvent& event : finishes) {
      EXPECT_EQ(event.reason, FinishReason::kMaxTokens);
      preemptions_ += event.usage.preemptions;
      cached_tokens_ += event.usage.cached_tokens;
    }
    ended_ += finishes.size();
    changed_.notify_all();
  }
  Tokens Await(size_t ends) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= ends; });
    return tokens_;
  }
  int preemptions() const { return preemptions_; }
  int cached_tokens() const { return cached_tokens_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Tokens tokens_;
  size_t ended_ = 0;
  int preemptions_ = 0;
  int cached_tokens_ = 0;
};

// Greedy, random, penalised: every kind of row side by side.
std::unique_ptr<Request> MakeRequest(RequestId id, int32_t vocab_size) {
  std::mt19937 random(static_cast<uint32_t>(id));
  auto request = std::make_unique<Request>();
  request->id = id;
  request->prompt.resize(1 + random() % 80);
  for (int32_t& token : request->prompt) token = static_cast<int32_t>(random() % vocab_size);
  SamplingParams& sampling = request->sampling;
  sampling.max_tokens = 120 + static_cast<int32_t>(random() % 50);
  sampling.row.seed = random();
  sampling.row.temperature = id % 3 == 0 ? 0.0f : 1.0f;
  sampling.row.top_k = id % 4 == 1 ? 20 : 0;
  sampling.row.top_p = id % 5 == 2 ? 0.9f : 1.0f;
  sampling.row.repetition_penalty = id % 6 == 5 ? 1.2f : 1.0f;
  sampling.row.frequency_penalty = id % 7 == 6 ? 0.5f : 0.0f;
  request->arrival_ns = SteadyNowNs();
  return request;
}

constexpr RequestId kRequests = 12;

struct Outcome {
  Tokens tokens;  // of the last round
  int preemptions = 0;
  int cached_tokens = 0;
};

// In each round but the first, a request finds all full blocks of its prompt.
Outcome RunAll(EngineConfig config, bool together, int32_t growth_horizon = 128, int rounds = 1) {
  config.device = "cpu";
  absl::StatusOr<EngineSetup> setup = PlanEngine(config);
  EXPECT_TRUE(setup.ok()) << setup.status();
  setup->scheduler.growth_horizon = growth_horizon;
  WorkerReport report;
  absl::StatusOr<std::unique_ptr<Transport>> transport = StartThreads(*setup, &report);
  EXPECT_TRUE(transport.ok()) << transport.status();
  CollectingSink sink;
  Engine engine(setup->scheduler, setup->limits, *std::move(transport), &sink, setup->graph_sizes);
  Outcome run;
  for (int round = 0; round < rounds; ++round) {
    const RequestId before = kRequests * static_cast<RequestId>(round);
    for (RequestId id = 1; id <= kRequests; ++id) {
      std::unique_ptr<Request> request = MakeRequest(id, setup->model.vocab_size);
      request->id = before + id;
      const absl::Status status = engine.Submit(std::move(request));
      EXPECT_TRUE(status.ok()) << status;
      if (!together) sink.Await(before + id);
    }
    Tokens tokens = sink.Await(before + kRequests);
    run.tokens.clear();
    for (RequestId id = 1; id <= kRequests; ++id) run.tokens[id] = tokens[before + id];
  }
  run.preemptions = sink.preemptions();
  run.cached_tokens = sink.cached_tokens();
  return run;
}

// One request at a time, whole prompts, one step in flight: the plainest way to serve gives the
// expected tokens.
const Tokens& TokensAlone(EngineConfig config) {
  static std::map<std::string, Tokens> known;
  Tokens& tokens = known[config.model];
  config.steps_in_flight = 1;
  if (tokens.empty()) tokens = RunAll(config, /*together=*/false).tokens;
  return tokens;
}

constexpr const char* kOtherRanksOtherTokens[] = {"fp8-channel", "fp8-kv", "int8-channel"};

// Over one checkpoint of every form that is served.
class EngineModelTest : public ::testing::TestWithParam<testing::TestCheckpoint> {
 protected:
  static EngineConfig Config() {
    EngineConfig config;
    config.model = DirOf(GetParam().name);
    config.max_num_seqs = 16;
    config.cpu_threads = 2;
    config.max_model_len = 256;
    if (std::string(GetParam().name).starts_with("fp8-kv")) config.kv_cache_dtype = "fp8";
    return config;
  }
  static const Tokens& Alone() { return TokensAlone(Config()); }
};

TEST_P(EngineModelTest, TokensDoNotDependOnNeighbours) {
  EXPECT_EQ(RunAll(Config(), true).tokens, Alone());
}

TEST_P(EngineModelTest, TokensDoNotDependOnChunking) {
  EngineConfig config = Config();
  config.max_num_batched_tokens = 17;
  EXPECT_EQ(RunAll(config, true).tokens, Alone());
}

// Rows also learn the tokens that were found, for their penalties: many more tokens than a step
// computes.
TEST_P(EngineModelTest, TokensDoNotDependOnTheCache) {
  EngineConfig config = Config();
  config.max_num_batched_tokens = 17;
  const Outcome run = RunAll(config, true, 128, /*rounds=*/2);
  EXPECT_EQ(run.tokens, Alone());
  const int32_t vocab_size = ModelConfig::Load(Config().model)->vocab_size;
  int whole_blocks = 0;
  for (RequestId id = 1; id <= kRequests; ++id) {
    whole_blocks += static_cast<int>(MakeRequest(id, vocab_size)->prompt.size() - 1) / 16 * 16;
  }
  EXPECT_EQ(run.cached_tokens, whole_blocks);
}

TEST_P(EngineModelTest, TokensDoNotDependOnStepsInFlight) {
  EngineConfig config = Config();
  config.steps_in_flight = 1;
  EXPECT_EQ(RunAll(config, true).tokens, Alone());
}

TEST_P(EngineModelTest, TokensSurvivePreemption) {
  EngineConfig config = Config();
  config.num_blocks_override = 40;  // twelve requests want about 140; admission reserves part
  const Outcome run = RunAll(config, true, /*growth_horizon=*/16);
  EXPECT_EQ(run.tokens, Alone());
  EXPECT_GT(run.preemptions, 0) << "the pool was not tight enough to prove anything";
}

TEST_P(EngineModelTest, TwoRanksGiveTheTokensOfOne) {
  EngineConfig config = Config();
  config.tensor_parallel_size = 2;
  if (std::ranges::any_of(kOtherRanksOtherTokens,
                          [](const std::string& name) { return name == GetParam().name; })) {
    GTEST_SKIP() << "each rank scales its slice of an 8-bit row by itself";
  }
  if (!ModelConfig::Load(config.model)->CheckTensorParallel(2).ok()) {
    EXPECT_FALSE(PlanEngine(config).ok());
    return;
  }
  EXPECT_EQ(RunAll(config, true).tokens, Alone());
}

// One checkpoint of each narrow encoding.
constexpr testing::TestCheckpoint kNarrow[] = {
    {"fp8-channel", "", "8-bit floats, a scale for each row"},
    {"fp8-block-qwen3", "", "8-bit floats, a scale for each block"},
    {"fp8-kv", "", "8-bit keys and values too"},
    {"int8-channel", "", "8-bit integers with 8-bit inputs"},
    {"int4-awq", "", "4 bits with zeros"},
    {"int4-gptq-order", "", "4 bits, groups of any columns"},
    {"int8-gptq", "", "8 bits with wide inputs"},
};
INSTANTIATE_TEST_SUITE_P(Narrow, EngineModelTest, ::testing::ValuesIn(kNarrow),
                         testing::NameOfCheckpoint);

INSTANTIATE_TEST_SUITE_P(Checkpoints, EngineModelTest, ::testing::ValuesIn(testing::kCheckpoints),
                         testing::NameOfCheckpoint);

}  // namespace
}  // namespace quire

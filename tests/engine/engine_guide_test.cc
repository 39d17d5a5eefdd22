// The whole engine on a real checkpoint, with masks made on threads of their own: outputs that
// follow a guide stay within it, are the same alone and in company, and change nothing for free
// neighbours.
// Covers engine/mask_exchange.cc, engine/masks/mask_pool.cc, engine/masks/output_guide.cc
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/engine_workers.h"
#include "engine/masks/mask_pool.h"
#include "gtest/gtest.h"
#include "tests/engine/engine_fakes.h"
#include "tests/engine/masks/scripted_guide.h"

namespace quire {
namespace {

constexpr RequestId kRequests = 10;
using Tokens = std::map<RequestId, std::vector<int32_t>>;

bool IsGuided(RequestId id) { return id % 2 == 0; }

// A ring of states; each has some tokens at the low and the high end of the vocabulary.
const ScriptedGrammar& GrammarOf(RequestId id, int32_t vocab_size) {
  static std::map<RequestId, std::shared_ptr<const ScriptedGrammar>> known;
  std::shared_ptr<const ScriptedGrammar>& grammar = known[id];
  if (grammar != nullptr) return *grammar;
  std::mt19937 random(static_cast<uint32_t>(id));
  GuideScript script;
  script.moves.resize(7);
  for (auto& moves : script.moves) {
    for (int i = 0; i < 6; ++i) moves[static_cast<int32_t>(random() % vocab_size)] = random() % 7;
    moves[vocab_size - 1 - static_cast<int32_t>(random() % 3)] = random() % 7;
  }
  grammar = std::make_shared<const ScriptedGrammar>(std::move(script));
  return *grammar;
}

std::unique_ptr<Request> MakeRequest(RequestId id, int32_t vocab_size) {
  std::mt19937 random(static_cast<uint32_t>(id) + 100);
  auto request = std::make_unique<Request>();
  request->id = id;
  request->prompt.resize(1 + random() % 60);
  for (int32_t& token : request->prompt) token = static_cast<int32_t>(random() % vocab_size);
  request->sampling.max_tokens = 40 + static_cast<int32_t>(random() % 40);
  request->sampling.row.seed = random();
  request->sampling.row.temperature = id % 3 == 0 ? 0.0f : 1.0f;
  request->sampling.row.top_p = id % 5 == 2 ? 0.9f : 1.0f;
  request->sampling.row.repetition_penalty = id % 4 == 2 ? 1.2f : 1.0f;
  if (IsGuided(id)) {
    const ScriptedGrammar& grammar = GrammarOf(id, vocab_size);
    request->guide = std::shared_ptr<const CompiledGuide>(std::shared_ptr<void>(), &grammar);
  }
  request->arrival_ns = SteadyNowNs();
  return request;
}

struct Outcome {
  Tokens tokens;
  int preemptions = 0;
  MaskStats masks;
};

EngineConfig Config() {
  EngineConfig config;
  config.model = QUIRE_SOURCE_DIR "/tests/testdata/models/llama";
  config.device = "cpu";
  config.max_num_seqs = 16;
  config.cpu_threads = 2;
  config.max_model_len = 256;
  return config;
}

Outcome RunAll(const EngineConfig& config, bool together, int32_t growth_horizon = 128) {
  absl::StatusOr<std::unique_ptr<EngineWorkers>> workers = EngineWorkers::Find(config);
  EXPECT_TRUE(workers.ok()) << workers.status();
  absl::StatusOr<EngineSetup> setup = PlanEngine((*workers)->config(), (*workers)->device());
  EXPECT_TRUE(setup.ok()) << setup.status();
  setup->scheduler.growth_horizon = growth_horizon;
  WorkerReport report;
  absl::StatusOr<std::unique_ptr<Transport>> transport = (*workers)->Start(*setup, &report);
  EXPECT_TRUE(transport.ok()) << transport.status();
  RecordingSink sink;
  Engine engine(setup->scheduler, setup->limits, *std::move(transport), &sink, setup->graph_sizes);
  for (RequestId id = 1; id <= kRequests; ++id) {
    const absl::Status status = engine.Submit(MakeRequest(id, setup->model.vocab_size));
    EXPECT_TRUE(status.ok()) << status;
    if (!together) sink.AwaitEnds(id);
  }
  sink.AwaitEnds(kRequests);
  Outcome run{.masks = engine.Stats().masks};
  for (RequestId id = 1; id <= kRequests; ++id) {
    const RecordingSink::Stream stream = sink.stream(id);
    run.tokens[id] = stream.tokens;
    EXPECT_EQ(stream.ends.at(0).reason, FinishReason::kMaxTokens);
    run.preemptions += stream.ends.at(0).usage.preemptions;
    if (!IsGuided(id)) continue;
    EXPECT_TRUE(GrammarOf(id, setup->model.vocab_size).script().Holds(stream.tokens)) << id;
  }
  return run;
}

// One request at a time, one step in flight.
const Tokens& Alone() {
  static const Tokens tokens = [] {
    EngineConfig config = Config();
    config.steps_in_flight = 1;
    return RunAll(config, /*together=*/false).tokens;
  }();
  return tokens;
}

TEST(EngineGuideTest, TokensDoNotDependOnNeighboursOrStepsInFlight) {
  const Outcome run = RunAll(Config(), true);
  EXPECT_EQ(run.tokens, Alone());
  size_t drawn = 0;
  std::set<int32_t> different;
  for (const auto& [id, tokens] : run.tokens) {
    if (!IsGuided(id)) continue;
    drawn += tokens.size();
    different.insert(tokens.begin(), tokens.end());
  }
  EXPECT_GT(different.size(), 30u);
  EXPECT_EQ(run.masks.made, drawn);  // one for each token
  EXPECT_GT(run.masks.ns, 0);
}

TEST(EngineGuideTest, TokensSurvivePreemption) {
  EngineConfig config = Config();
  config.num_blocks_override = 26;
  const Outcome run = RunAll(config, true, /*growth_horizon=*/16);
  EXPECT_EQ(run.tokens, Alone());
  EXPECT_GT(run.preemptions, 0) << "the pool was not tight enough to prove anything";
}

TEST(EngineGuideTest, TwoRanksGiveTheTokensOfOne) {
  EngineConfig config = Config();
  config.tensor_parallel_size = 2;
  EXPECT_EQ(RunAll(config, true).tokens, Alone());
}

// Masks travel through shared memory.
TEST(EngineGuideTest, WorkerProcessesGiveTheTokensOfThreads) {
  EngineConfig config = Config();
  config.worker_process = "on";
  config.worker_program = QUIRE_BINARY_DIR "/bin/quire-worker";
  config.tensor_parallel_size = 2;
  EXPECT_EQ(RunAll(config, true).tokens, Alone());
}

// A guide that makes `free_masks` masks and then never ends its work until it is let go.
class SlowGuide final : public TokenGuide, public CompiledGuide {
 public:
  explicit SlowGuide(std::binary_semaphore* gate, int free_masks = 0)
      : gate_(gate), free_masks_(free_masks) {}
  std::unique_ptr<TokenGuide> Start() const override {
    return std::make_unique<SlowGuide>(gate_, free_masks_);
  }
  size_t bytes() const override { return 1; }
  void FillMask(std::span<uint32_t> words) override {
    if (free_masks_-- <= 0) {
      gate_->acquire();
      gate_->release();
    }
    for (uint32_t& word : words) word = 0;
    words[0] = 2;
  }
  bool Accept(int32_t token) override { return token == 1; }
  bool CanEnd() const override { return false; }
  int64_t TokensToClose() const override { return 0; }
  void SetBudget(int64_t) override {}

 private:
  std::binary_semaphore* gate_;
  int free_masks_;
};

// The row runs in a step that waits for its mask, until the mask is withheld.
TEST(EngineGuideTest, AMaskThatTakesLongerThanItsStepHoldsUpNobodyElse) {
  absl::StatusOr<EngineSetup> setup = PlanEngine(Config());
  ASSERT_TRUE(setup.ok()) << setup.status();
  WorkerReport report;
  absl::StatusOr<std::unique_ptr<Transport>> transport = StartThreads(*setup, &report);
  ASSERT_TRUE(transport.ok()) << transport.status();
  RecordingSink sink;
  std::binary_semaphore gate(0);
  const auto slow = std::make_shared<const SlowGuide>(&gate, /*free_masks=*/2);
  Engine engine(setup->scheduler, setup->limits, *std::move(transport), &sink, setup->graph_sizes);
  std::unique_ptr<Request> request = MakeRequest(1, setup->model.vocab_size);
  request->guide = slow;
  request->sampling.max_tokens = 4;
  ASSERT_TRUE(engine.Submit(std::move(request)).ok());
  ASSERT_TRUE(engine.Submit(MakeRequest(4, setup->model.vocab_size)).ok());
  sink.AwaitEnds(1);
  EXPECT_EQ(sink.stream(4).tokens, Alone().at(4));
  EXPECT_EQ(sink.stream(1).tokens, std::vector<int32_t>({1, 1}));
  gate.release();
  sink.AwaitEnds(2);
  EXPECT_EQ(sink.stream(1).tokens, std::vector<int32_t>({1, 1, 1, 1}));
  EXPECT_GE(engine.Stats().masks.late, 1u);
}

TEST(EngineGuideTest, ASlowGrammarHoldsUpNobodyElseAndCanBeCancelled) {
  absl::StatusOr<EngineSetup> setup = PlanEngine(Config());
  ASSERT_TRUE(setup.ok()) << setup.status();
  WorkerReport report;
  absl::StatusOr<std::unique_ptr<Transport>> transport = StartThreads(*setup, &report);
  ASSERT_TRUE(transport.ok()) << transport.status();
  RecordingSink sink;
  std::binary_semaphore gate(0);
  const auto slow = std::make_shared<const SlowGuide>(&gate);
  Engine engine(setup->scheduler, setup->limits, *std::move(transport), &sink, setup->graph_sizes);
  std::unique_ptr<Request> request = MakeRequest(1, setup->model.vocab_size);
  request->guide = slow;
  request->sampling.max_tokens = 3;
  ASSERT_TRUE(engine.Submit(std::move(request)).ok());
  ASSERT_TRUE(engine.Submit(MakeRequest(4, setup->model.vocab_size)).ok());
  sink.AwaitEnds(1);  // the other one, whose masks a second thread makes
  EXPECT_EQ(sink.stream(4).tokens, Alone().at(4));
  EXPECT_TRUE(sink.stream(1).tokens.empty());
  EXPECT_TRUE(engine.Stats().fault.empty());
  engine.Cancel(1, FinishReason::kCancelled);
  sink.AwaitEnds(2);
  EXPECT_EQ(sink.stream(1).ends.at(0).reason, FinishReason::kCancelled);
  gate.release();
  request = MakeRequest(3, setup->model.vocab_size);
  request->guide = slow;
  request->sampling.max_tokens = 3;
  ASSERT_TRUE(engine.Submit(std::move(request)).ok());
  sink.AwaitEnds(3);
  EXPECT_EQ(sink.stream(3).tokens, std::vector<int32_t>({1, 1, 1}));
}

}  // namespace
}  // namespace quire

// Worker: a row that begins in a copied block goes on as the row would have that computed it, to
// the last bit, and each writes its own block from then on.
// Covers engine/worker/rank/worker.cc
#include <bit>

#include "engine/engine_setup.h"
#include "engine/worker/rank/worker.h"
#include "gtest/gtest.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr int32_t kTokens = 21;  // a block of 16 and five more

std::unique_ptr<Worker> DemoWorker() {
  EngineConfig config;
  config.model = QUIRE_SOURCE_DIR "/models/demo";
  config.device = "cpu";
  config.max_num_seqs = 2;
  const absl::StatusOr<EngineSetup> setup = PlanEngine(config);
  CHECK(setup.ok());
  absl::StatusOr<std::unique_ptr<Worker>> worker =
      MakeWorker(SpecOf(*setup, 0), std::move(CreateCpuBackends(1, 1).front()));
  CHECK(worker.ok());
  return *std::move(worker);
}

// Row `row` computes tokens [start, kTokens + 1) of a text whose last token is `last`.
StepPlan Plan(uint64_t step, int32_t row, int32_t start, int32_t last,
              std::vector<int32_t> blocks) {
  StepPlan plan{.step = step, .num_tokens = kTokens + 1 - start, .num_samples = 1};
  plan.new_rows.push_back({.row = row, .num_prompt = kTokens + 1, .sampling = {.temperature = 0}});
  for (int32_t i = 0; i < kTokens; ++i) plan.tokens.push_back(300 + 7 * i);
  plan.tokens.push_back(last);
  plan.token_runs.push_back({.row = row, .start = 0, .begin = 0, .count = kTokens + 1});
  for (size_t i = 0; i < blocks.size(); ++i) {
    plan.block_adds.push_back({row, static_cast<int32_t>(i), blocks[i]});
  }
  plan.work.push_back({.row = row, .start = start, .count = plan.num_tokens, .sample = 1});
  return plan;
}

SampleResult Sampled(Worker& worker, const StepPlan& plan) {
  StepResult result;
  worker.Run(plan, result);
  return result.samples.at(0).result;
}

TEST(BlockCloneTest, ClonedBlockContinuesIdentically) {
  // The tokens of each continuation, from a worker of its own.
  std::vector<SampleResult> expected;
  for (const int32_t last : {500, 600}) {
    const std::unique_ptr<Worker> worker = DemoWorker();
    Sampled(*worker, Plan(1, 0, 0, 400, {1, 2}));
    expected.push_back(Sampled(*worker, Plan(2, 0, kTokens, last, {1, 2})));
  }
  ASSERT_NE(expected[0].logprob, expected[1].logprob);
  const std::unique_ptr<Worker> worker = DemoWorker();
  Sampled(*worker, Plan(1, 0, 0, 400, {1, 2}));
  StepPlan fork = Plan(2, 1, kTokens, 500, {1, 3});
  fork.block_clones = {{.from = 2, .to = 3}};
  std::vector<SampleResult> forked = {Sampled(*worker, fork)};
  // The origin is as it was.
  forked.push_back(Sampled(*worker, Plan(3, 0, kTokens, 600, {1, 2})));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(forked[i].token, expected[i].token);
    EXPECT_EQ(std::bit_cast<uint32_t>(forked[i].logprob),
              std::bit_cast<uint32_t>(expected[i].logprob));
  }
}

}  // namespace
}  // namespace quire

// Worker: the captured step that a plan runs as, and the ranges in a profile of a step. Its
// arithmetic is proved by the engine's tests with a model.
#include "engine/worker/rank/worker.h"

#include "engine/engine_setup.h"
#include "engine/worker/rank/graph_use.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/forwarding_backend.h"

namespace quire {
namespace {

StepPlan Decoding(int32_t rows) {
  StepPlan plan{.step = 1, .num_tokens = rows, .num_samples = rows};
  for (int32_t row = 0; row < rows; ++row) {
    plan.new_rows.push_back({.row = row, .num_prompt = 1});
    plan.block_adds.push_back({row, 0, 1 + row});
    plan.work.push_back({.row = row, .start = 0, .count = 1, .sample = 1});
  }
  return plan;
}

EngineConfig TwoRowsOfTheDemo() {
  EngineConfig config;
  config.model = QUIRE_SOURCE_DIR "/models/demo";
  config.device = "cpu";
  config.max_num_seqs = 2;
  return config;
}

TEST(GraphSizeTest, IsTheLeastThatHoldsEveryRow) {
  constexpr std::array<int32_t, 3> kSizes = {1, 4, 8};
  EXPECT_EQ(GraphSizeFor(Decoding(1), kSizes), 1);
  EXPECT_EQ(GraphSizeFor(Decoding(2), kSizes), 4);
  EXPECT_EQ(GraphSizeFor(Decoding(4), kSizes), 4);
  EXPECT_EQ(GraphSizeFor(Decoding(8), kSizes), 8);
  EXPECT_EQ(GraphSizeFor(Decoding(9), kSizes), 0);
  EXPECT_EQ(GraphSizeFor(Decoding(1), {}), 0);
}

TEST(GraphSizeTest, PrefillsAreNotCaptured) {
  constexpr std::array<int32_t, 1> kSizes = {8};
  StepPlan plan = Decoding(3);
  plan.work[1].count = 2;
  EXPECT_EQ(GraphSizeFor(plan, kSizes), 0);
  plan = Decoding(3);
  plan.work[2].sample = 0;  // a chunk of one token that is not its prompt's last
  EXPECT_EQ(GraphSizeFor(plan, kSizes), 0);
}

TEST(GraphUseTest, PaddedShareCountsAllComputedRows) {
  EXPECT_EQ((GraphUse{.size = 8}).padded_share(), 0);
  EXPECT_EQ((GraphUse{.size = 8, .replays = 4, .padded_rows = 8}).padded_share(), 0.25);
}

// Writes the names of ranges and the orders to record down, as a profiler would.
class RangeRecorder final : public testing::ForwardingBackend {
 public:
  explicit RangeRecorder(std::vector<std::string>* ranges) : profiler_(ranges) {}
  StepProfiler& profiler() override { return profiler_; }

 private:
  class Profiler final : public StepProfiler {
   public:
    explicit Profiler(std::vector<std::string>* ranges) : ranges_(ranges) {}
    void BeginRange(const char* name, int64_t number) override {
      ranges_->push_back(std::string(depth_++, '>') + name + " " + std::to_string(number));
    }
    void EndRange() override { --depth_; }
    void Record(bool on) override { ranges_->emplace_back(on ? "record" : "stop"); }

   protected:
    void Stamp(int) override {}
    void StampEnd(bool) override {}
    int64_t NsBetween(int, int) override { return 0; }

   private:
    std::vector<std::string>* const ranges_;
    size_t depth_ = 0;
  };
  Profiler profiler_;
};

TEST(WorkerTest, StepsAndLayersHaveNamesInProfiles) {
  const absl::StatusOr<EngineSetup> setup = PlanEngine(TwoRowsOfTheDemo());
  ASSERT_TRUE(setup.ok()) << setup.status();
  std::vector<std::string> ranges;
  const absl::StatusOr<std::unique_ptr<Worker>> worker =
      MakeWorker(SpecOf(*setup, 0), std::make_unique<RangeRecorder>(&ranges));
  ASSERT_TRUE(worker.ok()) << worker.status();
  std::vector<std::string> expected;
  StepResult result;
  for (uint64_t step = 1; step <= 2; ++step) {
    StepPlan plan = Decoding(2);
    plan.step = step;
    (*worker)->Run(plan, result);
    expected.push_back("step " + std::to_string(step));
    for (int32_t layer = 0; layer < setup->model.num_layers; ++layer) {
      expected.push_back(">layer " + std::to_string(layer));
    }
  }
  EXPECT_EQ(ranges, expected);
}

TEST(WorkerTest, ATimedStepTellsItsPartsAndDrawsTheSameTokens) {
  const absl::StatusOr<EngineSetup> setup = PlanEngine(TwoRowsOfTheDemo());
  ASSERT_TRUE(setup.ok()) << setup.status();
  const absl::StatusOr<std::unique_ptr<Worker>> worker =
      MakeWorker(SpecOf(*setup, 0), std::move(CreateCpuBackends(1, 1).front()));
  ASSERT_TRUE(worker.ok()) << worker.status();
  StepPlan plan = Decoding(2);
  plan.step = 1;
  StepResult plain, timed;
  (*worker)->Run(plan, plain);
  EXPECT_THAT(plain.parts, ::testing::IsEmpty());
  plan.watch.timed = true;
  (*worker)->Run(plan, timed);
  EXPECT_EQ(timed.checksum, plain.checksum);

  // The first layer normalises, the others sum and normalise: one rank has nothing to exchange.
  using enum StepPart;
  std::vector<StepPart> expected = {kIdle, kElementwise};
  for (int32_t layer = 0; layer < setup->model.num_layers; ++layer) {
    expected.insert(expected.end(), {kNorms, kProducts, kElementwise, kAttention, kProducts, kNorms,
                                     kProducts, kElementwise, kProducts});
  }
  expected.insert(expected.end(), {kElementwise, kNorms, kProducts, kSampling, kElementwise});
  std::vector<StepPart> parts;
  uint64_t sum_ns = 0;
  for (const PartTime& part : timed.parts) {
    parts.push_back(part.part);
    if (part.part != kIdle) sum_ns += part.ns;
  }
  EXPECT_EQ(parts, expected);
  EXPECT_GT(sum_ns, 0u);
  EXPECT_LE(sum_ns, static_cast<uint64_t>(timed.finished_ns - timed.started_ns));
}

TEST(WorkerTest, ProfilersRecordFromTheFirstWatchedStepToTheLast) {
  const absl::StatusOr<EngineSetup> setup = PlanEngine(TwoRowsOfTheDemo());
  ASSERT_TRUE(setup.ok()) << setup.status();
  std::vector<std::string> calls;
  const absl::StatusOr<std::unique_ptr<Worker>> worker =
      MakeWorker(SpecOf(*setup, 0), std::make_unique<RangeRecorder>(&calls));
  ASSERT_TRUE(worker.ok()) << worker.status();
  StepResult result;
  for (uint64_t step = 1; step <= 4; ++step) {
    StepPlan plan = Decoding(1);
    plan.step = step;
    plan.watch.recorded = step == 2 || step == 3;
    (*worker)->Run(plan, result);
  }
  std::erase_if(calls, [](const std::string& call) { return call.starts_with('>'); });
  EXPECT_THAT(calls,
              ::testing::ElementsAre("step 1", "step 2", "record", "step 3", "step 4", "stop"));
}

// The largest step that the settings allow is larger than all contexts together.
TEST(WorkerTest, WarmsUpWithNoMoreRowsThanItHas) {
  EngineConfig config = TwoRowsOfTheDemo();
  config.max_model_len = 16;
  config.max_num_batched_tokens = 512;
  const absl::StatusOr<EngineSetup> setup = PlanEngine(config);
  ASSERT_TRUE(setup.ok()) << setup.status();
  const absl::StatusOr<std::unique_ptr<Worker>> worker =
      MakeWorker(SpecOf(*setup, 0), std::move(CreateCpuBackends(1, 1).front()));
  ASSERT_TRUE(worker.ok()) << worker.status();
  (*worker)->WarmUp();
  StepResult result;
  (*worker)->Run(Decoding(2), result);
  EXPECT_EQ(result.samples.size(), 2u);
}

}  // namespace
}  // namespace quire

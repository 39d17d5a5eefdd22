// The engine on a GPU with the demo model: the greedy tokens of transformers, the same tokens with
// and without captured steps, also with 8-bit keys and values, and no leak in ten thousand
// requests. Runs from the repository's root.
//
// Covers engine/worker/program/cuda_worker.cc, kernels/cuda/cuda_backend.cc,
// kernels/cuda/event_profiler.cc, kernels/cuda/graph_set.cc, kernels/cuda/marked_stream.cc
#include "engine/worker/program/cuda_worker.h"

#include <condition_variable>
#include <mutex>
#include <numeric>

#include "engine/base/json.h"
#include "engine/engine.h"
#include "engine/values/step_times.h"
#include "engine/worker/in_process_transport.h"
#include "engine/worker/rank/graph_use.h"
#include "tests/gpu/demo_worker.h"

namespace quire::gpu {
namespace {

using Tokens = std::map<RequestId, std::vector<int32_t>>;

class CollectingSink : public OutputSink {
 public:
  void OnTurnStarts(std::span<const TurnStart>) override {}
  void OnReadings(std::span<const ReadingEvent>, std::span<const uint32_t>) override {}
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    std::lock_guard lock(mutex_);
    for (const TokenEvent& event : tokens) {
      std::vector<int32_t>& of_request = tokens_[event.id];
      EXPECT_EQ(event.index, static_cast<int32_t>(of_request.size()));
      of_request.push_back(event.token);
    }
    for (const FinishEvent& event : finishes) {
      EXPECT_NE(event.reason, FinishReason::kEngineFault);
    }
    ended_ += finishes.size();
    changed_.notify_all();
  }
  Tokens Await(size_t ends) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= ends; });
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Tokens tokens_;
  size_t ended_ = 0;
};

// An engine over one GPU worker in this process.
class GpuEngine {
 public:
  explicit GpuEngine(const DemoSettings& settings) {
    const EngineSetup setup = DemoSetup(settings);
    std::vector<std::unique_ptr<StepRunner>> workers;
    workers.push_back(MakeDemoWorker(settings, &report));
    engine = std::make_unique<Engine>(
        setup.scheduler, setup.limits,
        std::make_unique<InProcessTransport>(std::move(workers), setup.config.steps_in_flight),
        &sink, setup.graph_sizes);
  }

  CudaWorkerReport report;
  CollectingSink sink;
  std::unique_ptr<Engine> engine;
};

TEST(GpuWorkerTest, GreedyTokensMatchTransformers) {
  GpuEngine gpu({});
  const nlohmann::json cases = (*ReadJsonFile("tests/testdata/demo_model/greedy.json"))["cases"];
  RequestId id = 0;
  for (const nlohmann::json& item : cases) {
    auto request = std::make_unique<Request>();
    request->id = ++id;
    item.at("prompt_ids").get_to(request->prompt);
    request->sampling.max_tokens = static_cast<int32_t>(item.at("expected_ids").size());
    request->sampling.row.temperature = 0;
    ASSERT_TRUE(gpu.engine->Submit(std::move(request)).ok());
  }
  const Tokens tokens = gpu.sink.Await(id);
  // The reference computes in float32, and bf16 moves these logits by up to about 0.15. So a token
  // must match if every token before it led by more than that.
  constexpr double kClose = 0.3;
  size_t compared = 0, total = 0;
  for (RequestId i = 1; i <= id; ++i) {
    const nlohmann::json& item = cases[i - 1];
    const auto expected = item.at("expected_ids").get<std::vector<int32_t>>();
    const auto margins = item.at("margins").get<std::vector<double>>();
    total += expected.size();
    for (size_t t = 0; t < expected.size(); ++t, ++compared) {
      if (margins[t] < kClose && tokens.at(i)[t] != expected[t]) break;
      ASSERT_EQ(tokens.at(i)[t], expected[t])
          << "case " << i << " token " << t << " margin " << margins[t];
    }
  }
  EXPECT_GT(compared, total / 2);
  RecordProperty("compared_tokens", static_cast<int>(compared));
  RecordProperty("total_tokens", static_cast<int>(total));
}

// Runs the same plans on one worker, so that each step has the same tokens: the bits of a matrix
// product may depend on their number.
class PlannedSteps {
 public:
  explicit PlannedSteps(const DemoSettings& settings) {
    CudaWorkerReport report;
    worker_ = MakeDemoWorker(settings, &report);
  }

  // From now on every `interval`th step is timed by parts.
  void TimeEvery(uint64_t interval) { interval_ = interval; }
  // The parts of each timed step, and how long the host saw it run.
  struct Timed {
    std::vector<PartTime> parts;
    int64_t host_ns = 0;
  };
  const std::vector<Timed>& timed() const { return timed_; }

  // Prompts of `rows` rows in chunks, then `steps` steps of all of them, two in flight.
  std::vector<int32_t> Run(int32_t rows, int32_t steps) {
    std::mt19937 random(11);
    std::vector<int32_t> lengths;
    for (int32_t row = 0; row < rows; ++row) {
      lengths.push_back(1 + static_cast<int32_t>(random() % 200));
      Prefill(row, lengths.back(), random);
    }
    for (int32_t step = 0; step < steps; ++step) {
      plan_.Clear();
      for (int32_t row = 0; row < rows; ++row) {
        plan_.work.push_back({.row = row, .start = lengths[row] + step, .count = 1, .sample = 1});
      }
      plan_.num_tokens = plan_.num_samples = rows;
      Launch();
      if (step > 0) Collect();
    }
    Collect();
    return tokens_;
  }

 private:
  static constexpr int32_t kBlocksPerRow = 5;

  void Prefill(int32_t row, int32_t length, std::mt19937& random) {
    plan_.Clear();
    const uint64_t id = static_cast<uint64_t>(row);
    plan_.new_rows = {{.row = row, .num_prompt = length, .sampling = MixedSampling(id, id + 1)}};
    for (int32_t i = 0; i < length; ++i) plan_.tokens.push_back(random() % 2000);
    plan_.token_runs = {{.row = row, .count = static_cast<uint32_t>(length)}};
    for (int32_t i = 0; i < kBlocksPerRow; ++i) {
      plan_.block_adds.push_back({row, i, 1 + row + i * 64});
    }
    plan_.work = {{.row = row, .count = length, .sample = 1}};
    plan_.num_tokens = length;
    plan_.num_samples = 1;
    Launch();
    Collect();
  }
  void Launch() {
    plan_.step = ++step_;
    plan_.watch.timed = interval_ > 0 && step_ % interval_ == 0;
    plan_.graph_size = GraphSizeFor(plan_, worker_->graph_sizes());
    worker_->Launch(plan_);
  }
  void Collect() {
    worker_->Collect(result_);
    if (!result_.parts.empty()) {
      timed_.push_back({result_.parts, result_.finished_ns - result_.started_ns});
    }
    for (const SampledToken& sample : result_.samples) {
      EXPECT_FALSE(sample.result.nonfinite);
      tokens_.push_back(sample.result.token);
    }
  }

  std::unique_ptr<Worker> worker_;
  StepPlan plan_;
  StepResult result_;
  uint64_t step_ = 0;
  uint64_t interval_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<Timed> timed_;
};

class PlannedStepsTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(PlannedStepsTest, CaptureAndDependentLaunchChangeNoToken) {
  const std::vector<int32_t> tokens = PlannedSteps({}).Run(GetParam(), 60);
  EXPECT_EQ(PlannedSteps({}).Run(GetParam(), 60), tokens) << "a second time";
  EXPECT_EQ(PlannedSteps({.capture = false}).Run(GetParam(), 60), tokens);
  EXPECT_EQ(PlannedSteps({.dependent_launch = false}).Run(GetParam(), 60), tokens);
  EXPECT_EQ(PlannedSteps({.capture = false, .dependent_launch = false}).Run(GetParam(), 60),
            tokens);
}

TEST_P(PlannedStepsTest, CaptureAndDependentLaunchChangeNoTokenOfEightBitKv) {
  ASSERT_EQ(DemoSpec({.kv_cache_dtype = "fp8"}).kv_layout.dtype, DType::kE4M3);
  const std::vector<int32_t> tokens = PlannedSteps({.kv_cache_dtype = "fp8"}).Run(GetParam(), 60);
  const auto run = [](bool capture, bool dependent_launch) {
    return PlannedSteps(
               {.capture = capture, .dependent_launch = dependent_launch, .kv_cache_dtype = "fp8"})
        .Run(GetParam(), 60);
  };
  EXPECT_EQ(run(true, true), tokens) << "a second time";
  EXPECT_EQ(run(false, true), tokens);
  EXPECT_EQ(run(true, false), tokens);
}

TEST_P(PlannedStepsTest, TimedStepsChangeNoTokenAndAddUp) {
  PlannedSteps steps({});
  steps.TimeEvery(3);
  EXPECT_EQ(steps.Run(GetParam(), 60), PlannedSteps({}).Run(GetParam(), 60));
  ASSERT_EQ(steps.timed().size(), (60 + static_cast<size_t>(GetParam())) / 3);
  for (const auto& [parts, host_ns] : steps.timed()) {
    ASSERT_EQ(parts.front().part, StepPart::kIdle);
    PartSums sums = SumOf(parts);
    for (const StepPart part : {StepPart::kProducts, StepPart::kAttention, StepPart::kNorms,
                                StepPart::kElementwise, StepPart::kSampling}) {
      EXPECT_GT(sums[static_cast<size_t>(part)], 0u) << Name(part);
    }
    sums[static_cast<size_t>(StepPart::kIdle)] = 0;
    const auto busy_ns = std::accumulate(sums.begin(), sums.end(), int64_t{0});
    EXPECT_LT(busy_ns, host_ns + 10'000);  // two clocks
  }
}

// Sizes of graphs, and sizes that are padded to one.
INSTANTIATE_TEST_SUITE_P(Rows, PlannedStepsTest, ::testing::Values(1, 3, 8, 13, 40, 61, 64));

TEST(GpuWorkerTest, TenThousandRequestsLeakNothing) {
  GpuEngine gpu({.max_num_seqs = 256});
  size_t free_before = 0, free_after = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_before, &total));
  constexpr RequestId kMany = 10'000;
  std::mt19937 random(7);
  for (RequestId id = 1; id <= kMany; ++id) {
    ASSERT_TRUE(gpu.engine->Submit(MakeRequest(id, 40, 24)).ok());
    if (random() % 4 == 0) {
      gpu.engine->Cancel(1 + random() % id, FinishReason::kCancelled);
    }
  }
  gpu.sink.Await(kMany);
  const EngineStats stats = gpu.engine->Stats();
  EXPECT_TRUE(gpu.engine->Idle());
  EXPECT_EQ(stats.load.free_blocks, stats.load.total_blocks);
  CUDA_CHECK(cudaMemGetInfo(&free_after, &total));
  EXPECT_EQ(free_before, free_after);
  for (const GraphStats& graph : gpu.report.graphs) {
    std::printf("graph %lld: %d nodes, %.2f ms, %lld bytes\n", static_cast<long long>(graph.key),
                graph.nodes, graph.capture_ms, static_cast<long long>(graph.bytes));
  }
  std::printf("planned %lld measured %lld bytes, load %.2f s, warm %.2f s\n",
              static_cast<long long>(gpu.report.planned_bytes),
              static_cast<long long>(gpu.report.measured_bytes), gpu.report.load_seconds,
              gpu.report.warm_seconds);
}

}  // namespace
}  // namespace quire::gpu

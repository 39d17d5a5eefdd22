// NaN keys and values, of 16 bits or 8, end the request that owns them, and no other: neither its
// neighbours in the batch nor the next sequence in its blocks. Runs from the repository's root.
//
// Covers kernels/cuda/sample/sample.cu, engine/worker/program/cuda_worker.cc
#include <condition_variable>
#include <mutex>

#include "engine/engine.h"
#include "engine/worker/in_process_transport.h"
#include "engine/worker/rank/graph_use.h"
#include "tests/gpu/demo_worker.h"

namespace quire::gpu {
namespace {

constexpr int32_t kBlocksPerRow = 4;
constexpr int32_t kRows = 6;  // two rows of a graph of eight are padding
constexpr int32_t kPoisoned = 3;

// A worker whose KV pool the test can write to.
class OpenWorker {
 public:
  explicit OpenWorker(const char* kv_cache_dtype) {
    const DemoSettings settings{.max_num_seqs = 16, .kv_cache_dtype = kv_cache_dtype};
    const WorkerSpec spec = DemoSpec(settings);
    std::string why;
    std::unique_ptr<CudaBackend> backend = CudaBackend::Create(DemoOptions(spec, settings), &why);
    CHECK(backend != nullptr);
    CudaBackend& device = *backend;
    absl::StatusOr<std::unique_ptr<Model>> model =
        LoadModel(spec.model_dir, spec.model, spec.tp, spec.model_options, *backend);
    CHECK(model.ok());
    absl::StatusOr<KvCache> cache = KvCache::Create(*backend, spec.kv_layout, spec.num_blocks);
    CHECK(cache.ok());
    pool_ = static_cast<char*>(cache->block_data(0));
    block_bytes_ = static_cast<size_t>(spec.kv_layout.block_bytes());
    absl::StatusOr<std::unique_ptr<Worker>> made =
        Worker::Create(spec.worker, std::move(backend), *std::move(model), *std::move(cache));
    CHECK(made.ok());
    worker = *std::move(made);
    worker->WarmUp();
    device.Seal();
  }

  // Makes every key and value of a block NaN, which ones are in every type. No step may be in
  // flight.
  void Poison(int32_t block) const {
    CUDA_CHECK(cudaMemset(pool_ + block_bytes_ * static_cast<size_t>(block), 0xFF, block_bytes_));
    CUDA_CHECK(cudaDeviceSynchronize());
  }

  std::unique_ptr<Worker> worker;

 private:
  char* pool_ = nullptr;
  size_t block_bytes_ = 0;
};

// The samples of each row, step by step.
using Samples = std::map<int32_t, std::vector<SampleResult>>;

class Steps {
 public:
  explicit Steps(const char* kv_cache_dtype) : open_(kv_cache_dtype) {}

  void Prefill(int32_t row, int32_t length, int32_t first_block) {
    std::mt19937 random(static_cast<uint32_t>(row * 1000 + length));
    plan_.Clear();
    plan_.new_rows = {{.row = row, .num_prompt = length, .sampling = MixedSampling(row, 17)}};
    for (int32_t i = 0; i < length; ++i) {
      plan_.tokens.push_back(static_cast<int32_t>(random() % kDemoVocabulary));
    }
    plan_.token_runs = {{.row = row, .count = static_cast<uint32_t>(length)}};
    for (int32_t i = 0; i < kBlocksPerRow; ++i) {
      plan_.block_adds.push_back({row, i, first_block + i});
    }
    plan_.work = {{.row = row, .count = length, .sample = 1}};
    plan_.num_tokens = length;
    known_[row] = length;
    Run();
  }
  // One token for each row.
  void Decode() {
    plan_.Clear();
    for (auto& [row, known] : known_) {
      plan_.work.push_back({.row = row, .start = known++, .count = 1, .sample = 1});
    }
    plan_.num_tokens = static_cast<int32_t>(plan_.work.size());
    Run();
  }
  void Poison(int32_t block) const { open_.Poison(block); }
  Samples Take() { return std::exchange(samples_, {}); }

 private:
  void Run() {
    plan_.step = ++step_;
    plan_.num_samples = static_cast<int32_t>(plan_.work.size());
    plan_.graph_size = GraphSizeFor(plan_, open_.worker->graph_sizes());
    open_.worker->Run(plan_, result_);
    for (const SampledToken& sample : result_.samples) {
      samples_[sample.row].push_back(sample.result);
    }
  }

  OpenWorker open_;
  StepPlan plan_;
  StepResult result_;
  uint64_t step_ = 0;
  std::map<int32_t, int32_t> known_;
  Samples samples_;
};

int32_t FirstBlock(int32_t row) { return 1 + row * kBlocksPerRow; }

void Prefill(Steps& steps) {
  for (int32_t row = 0; row < kRows; ++row) steps.Prefill(row, 20 + 25 * row, FirstBlock(row));
}

// Tokens of all rows while one row turns NaN, or does not; then tokens of the next sequence in its
// blocks.
struct Course {
  Samples together, after;
};

Course RunCourse(const char* kv_cache_dtype, bool poison) {
  Steps steps(kv_cache_dtype);
  // The null block, which padding rows read and write.
  if (poison) steps.Poison(0);
  Prefill(steps);
  for (int32_t i = 0; i < 4; ++i) steps.Decode();
  for (int32_t i = 0; poison && i < kBlocksPerRow; ++i) steps.Poison(FirstBlock(kPoisoned) + i);
  for (int32_t i = 0; i < 8; ++i) steps.Decode();
  Course course{.together = steps.Take(), .after = {}};
  // Fills one block and a part of the next, whose other slots keep their old contents.
  steps.Prefill(kPoisoned, 70, FirstBlock(kPoisoned));
  for (int32_t i = 0; i < 12; ++i) steps.Decode();
  course.after = steps.Take();
  return course;
}

std::vector<int32_t> Tokens(const std::vector<SampleResult>& samples) {
  std::vector<int32_t> tokens;
  for (const SampleResult& sample : samples) tokens.push_back(sample.token);
  return tokens;
}

// By --kv-cache-dtype.
class NonfiniteGpuTest : public ::testing::TestWithParam<const char*> {};

TEST_P(NonfiniteGpuTest, NonfiniteRowLeavesNeighboursIntact) {
  const Course clean = RunCourse(GetParam(), /*poison=*/false);
  const Course poisoned = RunCourse(GetParam(), /*poison=*/true);
  for (int32_t row = 0; row < kRows; ++row) {
    const std::vector<SampleResult>& samples = poisoned.together.at(row);
    ASSERT_EQ(samples.size(), 13u);
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(samples[i].nonfinite, row == kPoisoned && i >= 5)
          << "row " << row << " token " << i;
      EXPECT_EQ(clean.together.at(row)[i].nonfinite, 0);
    }
    if (row == kPoisoned) continue;
    EXPECT_EQ(Tokens(samples), Tokens(clean.together.at(row))) << "row " << row;
    EXPECT_EQ(Tokens(poisoned.after.at(row)), Tokens(clean.after.at(row))) << "row " << row;
  }
}

TEST_P(NonfiniteGpuTest, NextSequenceInNonfiniteBlocksIsIntact) {
  const Samples clean = RunCourse(GetParam(), /*poison=*/false).after;
  const Samples after = RunCourse(GetParam(), /*poison=*/true).after;
  for (const SampleResult& sample : after.at(kPoisoned)) EXPECT_EQ(sample.nonfinite, 0);
  EXPECT_EQ(Tokens(after.at(kPoisoned)), Tokens(clean.at(kPoisoned)));
}

// Makes the keys and values of one request NaN as it decodes its fifth token.
class NanInjector final : public StepRunner {
 public:
  NanInjector(uint64_t seed, const char* kv_cache_dtype) : seed_(seed), open_(kv_cache_dtype) {}

  void Run(const StepPlan& plan, StepResult& result) override {
    for (const NewRow& row : plan.new_rows) {
      if (row.sampling.seed == seed_) row_ = row.row;
    }
    for (const BlockAdd& add : plan.block_adds) {
      if (add.row == row_) blocks_.push_back(add.block);
    }
    for (const RowWork& work : plan.work) {
      if (work.row != row_ || work.count != 1 || ++decoded_ != 5) continue;
      for (const int32_t block : blocks_) open_.Poison(block);
      row_ = -1;
    }
    open_.worker->Run(plan, result);
  }

 private:
  const uint64_t seed_;
  OpenWorker open_;
  int32_t row_ = -1;
  int32_t decoded_ = 0;
  std::vector<int32_t> blocks_;
};

class EndsSink final : public OutputSink {
 public:
  void OnTurnStarts(std::span<const TurnStart>) override {}
  void OnReadings(std::span<const ReadingEvent>, std::span<const uint32_t>) override {}
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    const std::lock_guard lock(mutex_);
    for (const TokenEvent& event : tokens) ++tokens_[event.id];
    for (const FinishEvent& event : finishes) ends_[event.id] = event.reason;
    changed_.notify_all();
  }
  std::map<RequestId, FinishReason> Await(size_t ends) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_.size() >= ends; });
    return ends_;
  }
  int32_t tokens(RequestId id) {
    const std::lock_guard lock(mutex_);
    return tokens_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, int32_t> tokens_;
  std::map<RequestId, FinishReason> ends_;
};

TEST_P(NonfiniteGpuTest, EngineFailsOnlyTheNonfiniteRequest) {
  constexpr RequestId kRequests = 8, kPoisonedRequest = 4;
  constexpr int32_t kTokens = 40;
  constexpr uint64_t kPoisonedSeed = 0x51C;
  const EngineSetup setup = DemoSetup({.max_num_seqs = 16, .kv_cache_dtype = GetParam()});
  std::vector<std::unique_ptr<StepRunner>> workers;
  workers.push_back(std::make_unique<NanInjector>(kPoisonedSeed, GetParam()));
  EndsSink sink;
  Engine engine(setup.scheduler, setup.limits,
                std::make_unique<InProcessTransport>(std::move(workers), 2), &sink,
                setup.graph_sizes);
  for (RequestId id = 1; id <= kRequests; ++id) {
    std::unique_ptr<Request> request = MakeRequest(id, 50, 1);
    request->sampling.max_tokens = kTokens;
    if (id == kPoisonedRequest) request->sampling.row.seed = kPoisonedSeed;
    ASSERT_TRUE(engine.Submit(std::move(request)).ok());
  }
  for (const auto& [id, reason] : sink.Await(kRequests)) {
    const bool poisoned = id == kPoisonedRequest;
    EXPECT_EQ(reason, poisoned ? FinishReason::kNumeric : FinishReason::kMaxTokens)
        << "request " << id;
    // The prompt's token, and the four before the fifth.
    EXPECT_EQ(sink.tokens(id), poisoned ? 5 : kTokens) << "request " << id;
  }
  EXPECT_TRUE(engine.Idle());
  const SchedulerLoad load = engine.Stats().load;
  EXPECT_EQ(load.free_blocks, load.total_blocks);
}

INSTANTIATE_TEST_SUITE_P(KvTypes, NonfiniteGpuTest, ::testing::Values("auto", "fp8"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace quire::gpu

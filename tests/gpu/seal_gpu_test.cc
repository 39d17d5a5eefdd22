// Service allocates nothing: ten thousand mixed steps make no allocating call of the driver. A
// preloaded shim counts the calls; the program restarts itself with the shim. Runs from the
// repository's root.
//
// Covers engine/worker/program/cuda_worker.cc, kernels/cuda/cuda_backend.cc,
// kernels/cuda/graph_set.cc
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "engine/engine_config.h"
#include "engine/worker/rank/graph_use.h"
#include "tests/gpu/allocation_shim.h"
#include "tests/gpu/demo_worker.h"

namespace quire::gpu {
namespace {

template <typename Function>
Function Find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

uint64_t AllocationCalls() { return Find<AllocationCallsFunction>(kAllocationCalls)(); }
const char* AllocationNames() { return Find<AllocationNamesFunction>(kAllocationNames)(); }

// Sequences arrive in bursts, prefill in chunks, and end: steps of prefill, of decode, and of both.
class MixedSteps {
 public:
  static constexpr int32_t kRows = 64, kBudget = 512;
  static constexpr int32_t kBlocksPerRow = 6;

  void Plan(StepPlan& plan) {
    plan.Clear();
    plan.step = ++step_;
    budget_ = kBudget;
    for (int32_t row = 0; row < kRows; ++row) Decode(row, plan);
    for (int32_t row = 0; row < kRows; ++row) Prefill(row, plan);
    // A burst, then steps that only decode.
    for (int32_t row = 0; step_ % 40 < 6 && row < kRows; ++row) Admit(row, plan);
    plan.num_tokens = kBudget - budget_;
    for (const RowWork& work : plan.work) plan.num_samples += work.sample;
  }

 private:
  struct Sequence {
    int32_t prompt = 0, computed = 0, end = 0;
    bool alive() const { return computed < end; }
  };

  void Decode(int32_t row, StepPlan& plan) {
    Sequence& s = sequences_[row];
    if (!s.alive() || s.computed < s.prompt) return;
    plan.work.push_back({.row = row, .start = s.computed++, .count = 1, .sample = 1});
    --budget_;
  }
  void Prefill(int32_t row, StepPlan& plan) {
    Sequence& s = sequences_[row];
    const int32_t count = std::min(s.prompt - s.computed, budget_);
    if (!s.alive() || count <= 0) return;
    const bool last = s.computed + count == s.prompt;
    plan.token_runs.push_back({.row = row,
                               .start = s.computed,
                               .begin = static_cast<uint32_t>(plan.tokens.size()),
                               .count = static_cast<uint32_t>(count)});
    for (int32_t i = 0; i < count; ++i) {
      plan.tokens.push_back(static_cast<int32_t>(random_() % kDemoVocabulary));
    }
    plan.work.push_back({.row = row, .start = s.computed, .count = count, .sample = last});
    s.computed += count;
    budget_ -= count;
  }
  void Admit(int32_t row, StepPlan& plan) {
    Sequence& s = sequences_[row];
    if (s.alive() || budget_ == 0 || random_() % 3 != 0) return;
    s = {.prompt = 1 + static_cast<int32_t>(random_() % 300)};
    s.end = s.prompt + 1 + static_cast<int32_t>(random_() % 80);
    NewRow row_begins{.row = row,
                      .num_prompt = s.prompt,
                      .sampling = MixedSampling(random_(), random_()),
                      .bias_begin = static_cast<uint32_t>(plan.biases.size()),
                      .ids_begin = static_cast<uint32_t>(plan.ids.size()),
                      .min_known = s.prompt + 5};
    for (; row % 5 == 0 && row_begins.bias_count < 3; ++row_begins.bias_count) {
      plan.biases.push_back({static_cast<int32_t>(10 + row_begins.bias_count), 1.5f});
    }
    for (; row % 4 == 0 && row_begins.banned_count < 2; ++row_begins.banned_count) {
      plan.ids.push_back(static_cast<int32_t>(row_begins.banned_count));
    }
    plan.new_rows.push_back(row_begins);
    for (int32_t i = 0; i < kBlocksPerRow; ++i) {
      plan.block_adds.push_back({row, i, 1 + row * kBlocksPerRow + i});
    }
    Prefill(row, plan);
  }

  std::mt19937 random_{29};
  uint64_t step_ = 0;
  int32_t budget_ = 0;
  std::array<Sequence, kRows> sequences_{};
};

int64_t FreeBytes() {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

TEST(SealGpuTest, TenThousandMixedStepsAllocateNothing) {
  constexpr int32_t kSteps = 10'000;
  CudaWorkerReport report;
  const DemoSettings settings{.max_num_seqs = MixedSteps::kRows,
                              .max_num_batched_tokens = MixedSteps::kBudget};
  const std::unique_ptr<Worker> worker = MakeDemoWorker(settings, &report);
  const uint64_t at_start = AllocationCalls();
  EXPECT_GT(at_start, 0u) << "the shim did not see the worker take its memory";
  AllocationNames();
  const int64_t free_before = FreeBytes();

  MixedSteps steps;
  StepPlan plan;
  StepResult result;
  int32_t replayed = 0, prompts = 0;
  for (int32_t launched = 0, collected = 0; collected < kSteps; ++collected) {
    for (; launched < kSteps && launched - collected < 2; ++launched) {
      do {
        steps.Plan(plan);
      } while (plan.work.empty());
      plan.step = static_cast<uint64_t>(launched) + 1;
      plan.graph_size = GraphSizeFor(plan, worker->graph_sizes());
      (plan.graph_size > 0 ? replayed : prompts) += 1;
      worker->Launch(plan);
    }
    worker->Collect(result);
    for (const SampledToken& sample : result.samples) ASSERT_EQ(sample.result.nonfinite, 0);
  }
  EXPECT_EQ(AllocationCalls() - at_start, 0u) << AllocationNames();
  EXPECT_EQ(FreeBytes(), free_before);
  EXPECT_GT(replayed, kSteps / 10);
  EXPECT_GT(prompts, kSteps / 10);
  RecordProperty("calls_before_ready", static_cast<int>(at_start));
  RecordProperty("steps_replayed", replayed);
  RecordProperty("steps_with_prompts", prompts);
}

void InstantiateGraph() {
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t node = nullptr;
  CUDA_CHECK(cudaGraphCreate(&graph, 0));
  CUDA_CHECK(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
  cudaGraphExec_t exec = nullptr;
  CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CUDA_CHECK(cudaGraphExecDestroy(exec));
  CUDA_CHECK(cudaGraphDestroy(graph));
}

// The shim counts real allocations, so its count of zero means something.
TEST(SealGpuTest, ShimCountsEveryKindOfAllocation) {
  CUDA_CHECK(cudaFree(nullptr));
  void* taken = nullptr;
  std::vector<char> page(1 << 20);
  const std::vector<std::pair<const char*, std::function<void()>>> ways = {
      {"cudaMalloc", [&] { CUDA_CHECK(cudaMalloc(&taken, 100)), CUDA_CHECK(cudaFree(taken)); }},
      {"cudaMallocPitch",
       [&] {
         size_t pitch = 0;
         CUDA_CHECK(cudaMallocPitch(&taken, &pitch, 100, 10)), CUDA_CHECK(cudaFree(taken));
       }},
      {"cudaMallocAsync",
       [&] { CUDA_CHECK(cudaMallocAsync(&taken, 100, nullptr)), CUDA_CHECK(cudaFree(taken)); }},
      {"cudaHostAlloc",
       [&] { CUDA_CHECK(cudaHostAlloc(&taken, 100, 0)), CUDA_CHECK(cudaFreeHost(taken)); }},
      {"cudaMallocHost",
       [&] { CUDA_CHECK(cudaMallocHost(&taken, 100)), CUDA_CHECK(cudaFreeHost(taken)); }},
      {"cudaHostRegister",
       [&] {
         CUDA_CHECK(cudaHostRegister(page.data(), page.size(), 0));
         CUDA_CHECK(cudaHostUnregister(page.data()));
       }},
      {"cudaMallocArray",
       [&] {
         cudaArray_t array = nullptr;
         const cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>();
         CUDA_CHECK(cudaMallocArray(&array, &floats, 64));
         CUDA_CHECK(cudaFreeArray(array));
       }},
      {"cudaGraphInstantiate", InstantiateGraph},
  };
  for (const auto& [way, take] : ways) {
    const uint64_t before = AllocationCalls();
    take();
    EXPECT_GT(AllocationCalls(), before) << way;
  }
}

// The shim lies beside this program.
void StartAgainWithShim(char** argv) {
  if (Find<AllocationCallsFunction>(kAllocationCalls) != nullptr) return;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  setenv("LD_PRELOAD", (self.parent_path() / "liballocation_shim.so").c_str(), 1);
  // Restarts once: if the shim does not load, the test reports it.
  if (std::getenv("QUIRE_SHIM_TRIED") != nullptr) return;
  setenv("QUIRE_SHIM_TRIED", "1", 1);
  execv(self.c_str(), argv);
}

}  // namespace
}  // namespace quire::gpu

int main(int argc, char** argv) {
  quire::gpu::StartAgainWithShim(argv);
  ::testing::InitGoogleTest(&argc, argv);
  if (dlsym(RTLD_DEFAULT, kAllocationCalls) == nullptr) {
    std::fprintf(stderr,
                 "liballocation_shim.so, which belongs beside this program, does not load\n");
    return 1;
  }
  return RUN_ALL_TESTS();
}

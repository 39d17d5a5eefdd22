// The demo model on the GPU, for tests of whole steps: makes its worker, and requests for it. Run
// from the repository's root.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/engine_setup.h"
#include "engine/values/request.h"
#include "engine/worker/program/cuda_worker.h"
#include "gtest/gtest.h"
#include "kernels/check.h"
#include "kernels/cuda/device/check.h"

namespace quire::gpu {

constexpr int32_t kDemoBlockSize = 64;
constexpr int32_t kDemoVocabulary = 2000;  // tokens of prompts are smaller

struct DemoSettings {
  bool capture = true;
  bool dependent_launch = true;
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 512;
  int32_t speculate = 0;
  const char* kv_cache_dtype = "auto";  // as --kv-cache-dtype
};

inline EngineSetup DemoSetup(const DemoSettings& settings) {
  constexpr int64_t kBytes = int64_t{16} << 30;  // more than the test uses
  EngineConfig config;
  config.model = "models/demo";
  config.device = "cuda";
  config.kv_cache_memory_bytes = int64_t{256} << 20;
  config.kv_offloading_size = 0;  // a test that needs an arena makes it
  config.max_num_seqs = settings.max_num_seqs;
  config.max_num_batched_tokens = settings.max_num_batched_tokens;
  config.speculate = settings.speculate;
  config.kv_cache_dtype = settings.kv_cache_dtype;
  absl::StatusOr<EngineSetup> setup =
      PlanEngine(config, {.kind = "cuda", .name = "", .total_bytes = kBytes, .free_bytes = kBytes});
  CHECK(setup.ok());
  CHECK_EQ(setup->kv_layout.block_size, kDemoBlockSize);
  return *std::move(setup);
}

inline WorkerSpec DemoSpec(const DemoSettings& settings) { return SpecOf(DemoSetup(settings), 0); }

inline CudaOptions DemoOptions(const WorkerSpec& spec, const DemoSettings& settings) {
  CudaOptions options = CudaOptionsFor(spec, {}, 0, "");
  options.capture = settings.capture;
  options.dependent_launch = settings.dependent_launch;
  return options;
}

inline std::unique_ptr<Worker> MakeDemoWorker(const DemoSettings& settings,
                                              CudaWorkerReport* report) {
  const WorkerSpec spec = DemoSpec(settings);
  absl::StatusOr<std::unique_ptr<Worker>> worker =
      MakeCudaWorker(spec, DemoOptions(spec, settings), report);
  EXPECT_TRUE(worker.ok()) << worker.status();
  return *std::move(worker);
}

// Mixes greedy, random and penalised rows.
inline SampleRow MixedSampling(uint64_t id, uint64_t seed) {
  return {.temperature = id % 3 == 0 ? 0.0f : 1.0f,
          .top_k = id % 4 == 1 ? 20 : 0,
          .top_p = id % 5 == 2 ? 0.9f : 1.0f,
          .min_p = id % 8 == 7 ? 0.05f : 0.0f,
          .repetition_penalty = id % 6 == 5 ? 1.2f : 1.0f,
          .frequency_penalty = id % 7 == 6 ? 0.5f : 0.0f,
          .seed = seed};
}

inline std::unique_ptr<Request> MakeRequest(RequestId id, int32_t longest_prompt,
                                            int32_t max_tokens) {
  std::mt19937 random(static_cast<uint32_t>(id));
  auto request = std::make_unique<Request>();
  request->id = id;
  request->prompt.resize(1 + random() % longest_prompt);
  for (int32_t& token : request->prompt) token = static_cast<int32_t>(random() % kDemoVocabulary);
  request->sampling.max_tokens = 1 + static_cast<int32_t>(random() % max_tokens);
  request->sampling.row = MixedSampling(id, random());
  request->arrival_ns = SteadyNowNs();
  return request;
}

}  // namespace quire::gpu

// Worker: one rank: a Backend, a Model, its KV cache and row tables. Executes plans and decides
// nothing. Its tables live in host memory, which is device memory on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/kv_cache.h"
#include "engine/model/model.h"
#include "engine/worker/batch_builder.h"
#include "engine/worker/row_tables.h"
#include "engine/worker/step_runner.h"

namespace quire {

struct WorkerOptions {
  int32_t max_num_seqs = 0;  // rows
  int32_t max_num_batched_tokens = 0;
  int32_t max_model_len = 0;
  int32_t vocab_size = 0;
};

class Worker final : public StepRunner {
 public:
  // Takes memory for the logits; RESOURCE_EXHAUSTED with the size when the device has too little.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(const WorkerOptions& options,
                                                        std::unique_ptr<Backend> backend,
                                                        std::unique_ptr<Model> model,
                                                        KvCache cache);

  void Run(const StepPlan& plan, StepResult& result) override;

 private:
  Worker(const WorkerOptions& options, std::unique_ptr<Backend> backend,
         std::unique_ptr<Model> model, KvCache cache, Buffer logits);
  void Sample(const StepPlan& plan, StepResult& result);

  const WorkerOptions options_;
  // Declared in this order because model and cache release memory of the backend.
  std::unique_ptr<Backend> backend_;
  KvCache cache_;
  Buffer logits_;  // [max_num_seqs, V] f32
  std::unique_ptr<Model> model_;
  RowTables tables_;
  BatchBuilder builder_;
  std::vector<SampleJob> jobs_;        // [R]
  std::vector<SampleResult> sampled_;  // [R]
};

}  // namespace quire

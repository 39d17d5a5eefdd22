// Worker: one rank: a Backend, a Model, its KV cache and row tables. Executes plans and decides
// nothing. Launch enqueues a step on the device and Collect waits for it later, so that the next
// step is queued behind it already. A step in which every row decodes one token is captured once
// per batch size of `graph_sizes` and replayed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/kv_cache.h"
#include "engine/model/model.h"
#include "engine/worker/copy/pool_copies.h"
#include "engine/worker/rank/row_tables.h"
#include "engine/worker/rank/step_arrays.h"
#include "engine/worker/rank/step_readings.h"
#include "engine/worker/rank/step_runner.h"
#include "engine/worker/rank/worker_spec.h"

namespace quire {

class Worker final : public StepRunner, public StepPipeline {
 public:
  // Device bytes of the logits: this rank's columns of all draws, and in a group all columns of its
  // share of the draws.
  static int64_t LogitsBytes(int32_t max_draws, int32_t vocab_size, int32_t ranks);

  // Takes memory for tables, arrays and logits; RESOURCE_EXHAUSTED with the size when the device
  // has too little.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(const WorkerOptions& options,
                                                        std::unique_ptr<Backend> backend,
                                                        std::unique_ptr<Model> model,
                                                        KvCache cache);

  // Lets the KV pool copy to and from an arena; see PoolCopies. Before the first Launch.
  void AttachHostArena(std::shared_ptr<HostArena> arena, bool checksum);

  // Runs steps of padding rows, so that no first-time work is left for service: prefills and draws
  // of every number for which products have kernels of their own, then each graph size, largest
  // first, once plain and once captured, and one of each reading. Before the first Launch.
  void WarmUp();

  // Enqueues a step; at most `steps_in_flight` may wait to be collected. Never blocks on the
  // device.
  void Launch(const StepPlan& plan) override;
  // Waits for the oldest launched step and fills its result. A second thread may call it, without a
  // lock, if each step's Launch happens before its Collect.
  void Collect(StepResult& result) override;
  // Launch and Collect.
  void Run(const StepPlan& plan, StepResult& result) override;
  bool AttachMasks(const MaskBoard& board) override;
  CopyRunner* copies() override { return copies_.get(); }

  Backend& backend() { return *backend_; }
  // The row counts of the captured steps, ascending: a plan's graph_size is one of them or 0.
  const std::vector<int32_t>& graph_sizes() const { return options_.graph_sizes; }

 private:
  // A step on the device.
  struct Flight {
    uint64_t step = 0;
    int32_t graph_size = 0;
    uint64_t mark = 0;
    int64_t started_ns = 0;
    int64_t enqueued_ns = 0;
    bool timed = false;
    std::vector<int32_t> rows;  // of each draw, in plan order
    size_t reading_words = 0;
  };

  Worker(const WorkerOptions& options, std::unique_ptr<Backend> backend,
         std::unique_ptr<Model> model, KvCache cache);
  absl::Status AllocateLogits();
  // Tells the profiler what is wanted of the step; true if the step is timed.
  bool Watch(const StepWatch& watch);
  void Enqueue(const StepDims& shape);
  // Draws a token for each row. In a group each rank draws for its share of the rows, which it gets
  // whole, and tells the others.
  void Draw(TensorView logits);
  // Gives every rank whole rows of the ranks' logits; WholeRows are this rank's.
  void Exchange(TensorView logits);
  TensorView WholeRows(TensorView logits) const;
  // This rank's columns of `num_rows` rows.
  TensorView LogitsOf(int32_t num_rows) const;
  // Enqueues the plan's readings, behind its step.
  void Read(const StepPlan& plan, const StepDims& shape);
  // Runs a step of padding rows and waits for it.
  void RunPadding(const StepMessageWriter::Padding& padding, bool capture = false);
  void WarmUpReadings();

  const WorkerOptions options_;
  // In this order: model and cache release memory of the backend.
  std::unique_ptr<Backend> backend_;
  KvCache cache_;
  Buffer logits_;  // [max_draws, LocalRows] f32
  Buffer rows_;    // in a group: [MostRows of max_draws, LocalRows * ranks] f32
  std::unique_ptr<Model> model_;
  RowTables tables_;
  StepArrays arrays_;
  StepReadings readings_;
  bool recorded_ = false;  // the last step was
  uint64_t launched_ = 0;
  std::atomic<uint64_t> collected_{0};  // Collect may run on another thread than Launch
  std::vector<Flight> flights_;         // [steps_in_flight], a ring
  std::unique_ptr<PoolCopies> copies_;  // null without an arena
};

// Loads the model and takes the KV pool and the tables. `arena` has the spec's shape; null: no
// copies. Errors as LoadModel's, KvCache::Create's and Worker::Create's.
absl::StatusOr<std::unique_ptr<Worker>> MakeWorker(const WorkerSpec& spec,
                                                   std::unique_ptr<Backend> backend,
                                                   std::shared_ptr<HostArena> arena = nullptr);

}  // namespace quire

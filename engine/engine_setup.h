// EngineSetup: from an EngineConfig to everything the engine is built with. PlanEngine resolves
// every "auto" and computes the memory plan from config.json alone; StartWorkers takes the memory,
// loads the weights and starts the worker group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/engine_config.h"
#include "engine/model/model.h"
#include "engine/model/model_config.h"
#include "engine/worker/worker_spec.h"

namespace quire {

// What each rank's memory goes to, in bytes, computed before loading.
struct MemoryPlan {
  struct Part {
    std::string name;  // "weights", "activations", "kv_cache", "row_tables"
    int64_t bytes = 0;
  };
  std::vector<Part> parts;
  int32_t ranks = 1;
  int32_t num_blocks = 0;  // the null block included
  int32_t block_size = 0;  // tokens
  int64_t total_bytes() const;
  int64_t kv_tokens() const { return int64_t{num_blocks - 1} * block_size; }
};

struct EngineSetup {
  EngineConfig config;  // with every auto resolved
  ModelConfig model;
  MemoryPlan memory;
  SchedulerConfig scheduler;
  EngineLimits limits;
  ModelOptions model_options;
  KvLayout kv_layout;  // of one rank
  std::string device;  // "cpu"
};

// Reads the model's config files. Errors: unreadable directory, unsupported model, sizes that do
// not fit together (each a sentence that says what to change).
absl::StatusOr<EngineSetup> PlanEngine(const EngineConfig& config);

// What the worker of a rank is built from.
WorkerSpec SpecOf(const EngineSetup& setup, int32_t rank);

// Loads the model on every rank (threads of this process on the cpu) and returns the transport to
// the running group. device_description receives Backend::Describe of rank 0.
absl::StatusOr<std::unique_ptr<Transport>> StartWorkers(const EngineSetup& setup,
                                                        std::string* device_description);

}  // namespace quire

// EngineSetup: from an EngineConfig to everything the engine is built with. PlanEngine resolves
// every "auto" and computes the memory plan from config.json and the facts of the device alone;
// engine_workers.h takes the memory, loads the weights and starts the worker group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine_config.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/kv_layout.h"
#include "engine/model/model_options.h"
#include "engine/values/scheduler_config.h"
#include "engine/worker/rank/device_facts.h"

namespace quire {

struct WorkerSpec;

// What each rank's memory goes to, in bytes, and what the host gives beside it, computed before
// loading.
struct MemoryPlan {
  struct Part {
    std::string name;  // "weights", "activations", "kv_cache", "row_tables"
    int64_t bytes = 0;
  };
  std::vector<Part> parts;
  int32_t ranks = 1;
  int32_t num_blocks = 0;    // the null block included
  int32_t block_size = 0;    // tokens
  DeviceFacts device;        // as it was before
  int64_t budget_bytes = 0;  // of a GPU: what the parts may add up to; 0: not limited
  int32_t num_pages = 0;     // of host memory for KV that leaves the device: blocks on every rank
  int64_t host_bytes = 0;    // that they take, of all ranks; not among the parts
  int64_t host_limit_bytes = 0;  // what this process may use of the host

  int64_t total_bytes() const;
  int64_t kv_tokens() const { return int64_t{num_blocks - 1} * block_size; }
  int64_t host_kv_tokens() const { return int64_t{num_pages} * block_size; }
  // One line a part, for people.
  std::string Table() const;
};

struct EngineSetup {
  EngineConfig config;  // with every auto resolved
  ModelConfig model;
  MemoryPlan memory;
  SchedulerConfig scheduler;
  EngineLimits limits;
  ModelOptions model_options;
  KvLayout kv_layout;                // of one rank
  std::vector<int32_t> graph_sizes;  // ascending; none on the cpu
  std::string device;                // "cpu", "cuda"
};

// Everything that does not depend on how much memory the device has: what the engine will be but
// for its KV blocks, its context if that follows from them, and its memory plan. Reads the model's
// config files. --device auto is taken for cpu. Errors: unreadable directory, unsupported model,
// settings that do not fit together (each a sentence that says what to change).
absl::StatusOr<EngineSetup> DraftEngine(const EngineConfig& config);

// The whole. `device` is what the draft's device said of itself; the cpu needs to say nothing.
// `host_limit_bytes` is the memory of the host that may be used; 0: what this process may.
// RESOURCE_EXHAUSTED, with the plan's table, when a GPU is too small.
absl::StatusOr<EngineSetup> PlanEngine(const EngineConfig& config, const DeviceFacts& device = {},
                                       int64_t host_limit_bytes = 0);

// What the worker of a rank is built from. Of a draft: the largest that may come of it.
WorkerSpec SpecOf(const EngineSetup& setup, int32_t rank);

}  // namespace quire

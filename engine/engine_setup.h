// EngineSetup: everything that the engine is built from, made from an EngineConfig. PlanEngine
// resolves every "auto" and computes the memory plan from config.json and the facts of the device
// alone; engine_workers.h then takes the memory, loads the weights and starts the worker group.
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

// The memory of each rank by part, and the host memory beside it, computed before loading.
struct MemoryPlan {
  struct Part {
    std::string name;  // "weights", "activations", "kv_cache", "row_tables"
    int64_t bytes = 0;
  };
  std::vector<Part> parts;
  int32_t ranks = 1;
  int32_t num_blocks = 0;        // the null block included
  int32_t block_size = 0;        // tokens
  DeviceFacts device;            // before anything was taken
  int64_t budget_bytes = 0;      // of a GPU: the most that the parts may add up to; 0: no limit
  int32_t num_pages = 0;         // of host memory for KV that leaves the device, on every rank
  int64_t host_bytes = 0;        // of the pages on all ranks; not among the parts
  int64_t host_limit_bytes = 0;  // host memory that this process may use

  int64_t total_bytes() const;
  int64_t kv_tokens() const { return int64_t{num_blocks - 1} * block_size; }
  int64_t host_kv_tokens() const { return int64_t{num_pages} * block_size; }
  // Of one block, and of one page, on all ranks; 0 if there is none.
  int64_t block_bytes() const;
  int64_t page_bytes() const { return num_pages == 0 ? 0 : host_bytes / num_pages; }
  // One line a part, for people.
  std::string Table() const;
};

struct EngineSetup {
  EngineConfig config;  // every auto resolved
  ModelConfig model;
  MemoryPlan memory;
  SchedulerConfig scheduler;
  EngineLimits limits;
  ModelOptions model_options;
  KvLayout kv_layout;                // of one rank
  std::vector<int32_t> graph_sizes;  // ascending; none on the cpu
  std::string device;                // "cpu", "cuda"
  std::string device_reason;         // why --device auto took it; see EngineWorkers
};

// The part of the setup that does not depend on the device's memory: all but the KV blocks, a
// context that follows from them, and the memory plan. Reads the model's config files; treats
// --device auto as cpu. Errors, each a sentence that says what to change: unreadable directory,
// unsupported model, contradicting settings, or a model or setting beyond the device's kernels (all
// reasons, one a line; see CheckDeviceCan).
absl::StatusOr<EngineSetup> DraftEngine(const EngineConfig& config);

// The whole setup. `device` has the facts of the draft's device; the cpu needs none.
// `host_limit_bytes`: host memory that may be used; 0: the limit of this process.
// RESOURCE_EXHAUSTED, with the plan's table, when a GPU is too small.
absl::StatusOr<EngineSetup> PlanEngine(const EngineConfig& config, const DeviceFacts& device = {},
                                       int64_t host_limit_bytes = 0);

// The spec of a rank's worker. From a draft: the largest spec that the plan may lead to.
WorkerSpec SpecOf(const EngineSetup& setup, int32_t rank);

}  // namespace quire

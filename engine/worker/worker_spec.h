// WorkerSpec: everything one rank's worker is built from, as values: the same whether it runs as a
// thread of the server or as a process of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/kv_cache.h"
#include "engine/model/model.h"
#include "engine/model/model_config.h"
#include "engine/model/tp.h"
#include "engine/worker/host_arena.h"
#include "engine/worker/worker.h"

namespace quire {

struct WorkerSpec {
  std::string model_dir;
  ModelConfig model;
  TpInfo tp;
  ModelOptions model_options;
  KvLayout kv_layout;  // of this rank
  int32_t num_blocks = 0;
  int32_t num_pages = 0;     // of the host arena; 0: there is none
  bool kv_checksum = false;  // of every page, verified before it is loaded
  WorkerOptions worker;

  HostArena::Shape arena_shape() const { return {num_pages, kv_layout.block_bytes()}; }
};

// Loads the model, takes the KV pool and the tables. `arena` is of the spec's shape; null: nothing
// is copied. Errors as LoadModel's, KvCache::Create's and Worker::Create's.
absl::StatusOr<std::unique_ptr<Worker>> MakeWorker(const WorkerSpec& spec,
                                                   std::unique_ptr<Backend> backend,
                                                   std::shared_ptr<HostArena> arena = nullptr);

}  // namespace quire

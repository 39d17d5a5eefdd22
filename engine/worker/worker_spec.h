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
#include "engine/worker/worker.h"

namespace quire {

struct WorkerSpec {
  std::string model_dir;
  ModelConfig model;
  TpInfo tp;
  ModelOptions model_options;
  KvLayout kv_layout;  // of this rank
  int32_t num_blocks = 0;
  WorkerOptions worker;
};

// Loads the model, takes the KV pool and the tables. Errors as LoadModel's, KvCache::Create's and
// Worker::Create's.
absl::StatusOr<std::unique_ptr<Worker>> MakeWorker(const WorkerSpec& spec,
                                                   std::unique_ptr<Backend> backend);

}  // namespace quire

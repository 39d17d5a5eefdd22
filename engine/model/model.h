// Model: computes the logits of the input's logit rows and writes exactly the input's KV slots.
// Allocates nothing after construction. One rank; used by that rank's thread only.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/checkpoint/tp.h"
#include "engine/model/kv_cache.h"
#include "engine/model/model_input.h"
#include "engine/model/model_options.h"
#include "kernels/backend.h"

namespace quire {

class Model {
 public:
  virtual ~Model() = default;
  // logits: [R, Vocabulary::LocalRows] f32, of this rank's run of the vocabulary.
  virtual void Forward(const ModelInput& input, const KvCache& cache, TensorView logits) = 0;
};

// Bytes that a rank holds beside its KV pool, computed from the config alone, before loading.
struct ModelMemory {
  int64_t weight_bytes = 0;
  int64_t arena_bytes = 0;  // activations, rope table
};
ModelMemory PlanModelMemory(const ModelConfig& config, TpInfo tp, const ModelOptions& options);

// Builds the architecture named in `config` (checkpoint/families.h) and loads its weights from
// DIR/*.safetensors. Errors name file and tensor: missing, extra, misshapen, truncated,
// overlapping, lying headers; RESOURCE_EXHAUSTED when the device has too little memory. The backend
// must outlive the model.
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& dir, const ModelConfig& config,
                                                 TpInfo tp, const ModelOptions& options,
                                                 Backend& backend);

}  // namespace quire

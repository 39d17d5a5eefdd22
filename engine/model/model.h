// Model: computes logits for the rows asked for and writes exactly the KV slots named in the input.
// Allocates nothing after construction. One rank; used by that rank's thread only.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/kv_cache.h"
#include "engine/model/model_config.h"
#include "engine/model/model_input.h"
#include "engine/model/tp.h"
#include "kernels/backend.h"

namespace quire {

class Model {
 public:
  virtual ~Model() = default;
  // logits: [R, V] f32 over the whole vocabulary, on every rank.
  virtual void Forward(const ModelInput& input, const KvCache& cache, TensorView logits) = 0;
};

struct ModelOptions {
  DType weight_dtype = DType::kF32;  // matrices are converted on load when stored otherwise
  // What is computed between them, and what biases are held in; the CPU backend knows float32
  // alone, whatever the weights.
  DType activation_dtype = DType::kF32;
  bool dummy_weights = false;  // random ones of the right shapes: no safetensors are read
  int32_t max_tokens = 0;      // largest T of any step: sizes the activation arena
  int32_t max_logit_rows = 0;  // largest R
  int32_t max_model_len = 0;   // positions of the rope table
  // The device's memory is the host's: files are read straight into it.
  bool weights_in_place = false;
  int32_t load_threads = 1;  // that read files
};

// Bytes a rank will hold before its KV pool: computed from the config alone, before loading.
struct ModelMemory {
  int64_t weight_bytes = 0;
  int64_t arena_bytes = 0;  // activations, rope table
};
ModelMemory PlanModelMemory(const ModelConfig& config, TpInfo tp, const ModelOptions& options);

// Builds the architecture named in `config` (registry.cc) and loads its weights from
// DIR/*.safetensors. Errors name file and tensor: missing, extra, misshapen, truncated,
// overlapping, lying headers; RESOURCE_EXHAUSTED when the device has too little memory. The backend
// must outlive the model.
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& dir, const ModelConfig& config,
                                                 TpInfo tp, const ModelOptions& options,
                                                 Backend& backend);

}  // namespace quire

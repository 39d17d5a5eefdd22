// Model: computes the logits of the input's logit rows and writes exactly the input's KV slots.
// Allocates nothing after construction. One rank; used by that rank's thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/checkpoint/safetensors.h"
#include "engine/model/checkpoint/tp.h"
#include "engine/model/kv_cache.h"
#include "engine/model/model_input.h"
#include "engine/model/model_options.h"
#include "kernels/backend.h"

namespace quire {

class Model {
 public:
  virtual ~Model() = default;
  // logits: [R, Vocabulary::LocalRows] f32, of this rank's run of the vocabulary. Of the other
  // tokens only keys and values count, unless the input says that they are read.
  virtual void Forward(const ModelInput& input, const KvCache& cache, TensorView logits) = 0;

  // Of tokens of the last Forward, whose input had reads_tokens or R == T: `rows` [num_rows]
  // indices into its T tokens, in memory that the device reads; num_rows is at most the options'
  // max_logit_rows. Their hidden states after the last norm, [num_rows, H]; valid until the next
  // call.
  virtual TensorView Hidden(const int32_t* rows, int32_t num_rows) = 0;
  // Their logits, as Forward writes them.
  virtual void Logits(const int32_t* rows, int32_t num_rows, TensorView logits) = 0;
};

// Bytes that a rank holds beside its KV pool, computed from the config alone, before loading.
struct ModelMemory {
  int64_t weight_bytes = 0;
  int64_t arena_bytes = 0;  // activations, rope table
};
ModelMemory PlanModelMemory(const ModelConfig& config, TpInfo tp, const ModelOptions& options);

// What LoadModel says of a checkpoint's names, shapes and types, from its headers alone: OK, or
// INVALID_ARGUMENT with every fault (Weights::Check). The model divides by tp.size.
absl::Status CheckTensors(const Checkpoint& checkpoint, const ModelConfig& config, TpInfo tp,
                          const ModelOptions& options);
// The stored tensors that a model does without, because they are of other towers or of heads that
// guess further tokens: how many by the beginning of their names. Of an architecture that is
// served.
std::map<std::string, int64_t> SkippedTensors(const ModelConfig& config,
                                              const Checkpoint& checkpoint);

// Builds the architecture named in `config` (checkpoint/families.h) and loads its weights from
// DIR/*.safetensors. Errors name file and tensor: missing, extra, misshapen, truncated,
// overlapping, lying headers; RESOURCE_EXHAUSTED when the device has too little memory. The backend
// must outlive the model.
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& dir, const ModelConfig& config,
                                                 TpInfo tp, const ModelOptions& options,
                                                 Backend& backend);

}  // namespace quire

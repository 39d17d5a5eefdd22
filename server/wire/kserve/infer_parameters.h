// InferParameters: the settings of a text request by the names that language-model backends of
// Triton give them, whether they come as tensors or as keys of `sampling_parameters`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/wire/kserve/tensors.h"

namespace quire {

namespace v1 {
class GenerateRequest;
}

// Where a request's settings go.
struct InferSettings {
  v1::GenerateRequest* request = nullptr;
  bool stream = false;
  bool finish_reason = false;
  bool num_input_tokens = false;
  bool num_output_tokens = false;
};

// A tensor that the model takes. For ModelMetadata and ModelConfig.
struct InferInput {
  const char* name;
  const char* datatype;
  bool list;  // any number of elements; else one
};
std::span<const InferInput> InferInputs();

// Applies one tensor. INVALID_ARGUMENT names it: unknown, of the wrong kind, or a setting that
// this server does not have.
absl::Status ApplyTensor(const NamedElements& tensor, InferSettings* settings);

}  // namespace quire

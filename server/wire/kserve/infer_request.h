// InferRequest: a ModelInferRequest as a request for text, with everything checked that needs no
// tokenizer.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/generate/request_codec.h"

namespace inference {
class ModelInferRequest;
}

namespace quire {

// The one version of a model.
inline constexpr char kModelVersion[] = "1";

// The outputs that a response has.
struct InferOutputs {
  bool text = true;
  bool finish_reason = false;
  bool num_input_tokens = false;
  bool num_output_tokens = false;
};

struct InferRequest {
  ParsedRequest parsed;
  std::string id;  // to be echoed; any text, and no id of this server's
  InferOutputs outputs;
  bool stream = false;  // as it comes, and not as one response
  bool raw = false;     // the request had raw contents, and so have its responses
};

// INVALID_ARGUMENT names the tensor or the parameter; NOT_FOUND the model.
absl::StatusOr<InferRequest> DecodeInfer(const inference::ModelInferRequest& request,
                                         const ServingModel& model, uint64_t seed);

// NOT_FOUND unless the server has the model in this version; an empty version is any.
absl::Status CheckModel(const std::string& name, const std::string& version,
                        const ServingModel& model);

// A refusal with its field named as this protocol's clients know it.
absl::Status NamedForInfer(const absl::Status& status);

}  // namespace quire

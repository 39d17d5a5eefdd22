// Tensors become a quire.v1 request, so that both protocols have the same ranges.
#include "server/wire/kserve/infer_request.h"

#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "field/kserve.pb.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"
#include "server/wire/field_names.h"
#include "server/wire/kserve/infer_parameters.h"
#include "server/wire/kserve/tensors.h"

namespace quire {
namespace {

constexpr FieldName kFieldNames[] = {
    {"sampling.temperature", "temperature"},
    {"sampling.top_k", "top_k"},
    {"sampling.top_p", "top_p"},
    {"sampling.min_p", "min_p"},
    {"sampling.repetition_penalty", "repetition_penalty"},
    {"sampling.presence_penalty", "presence_penalty"},
    {"sampling.frequency_penalty", "frequency_penalty"},
    {"stop.max_tokens", "max_tokens"},
    {"stop.min_tokens", "min_tokens"},
    {"stop.stop", "stop_words"},
    {"stop.stop_token_ids", "stop_token_ids"},
    {"text", "text_input"},
    {"prompt", "text_input"},
};

absl::Status CheckParameters(const inference::ModelInferRequest& request) {
  for (const auto& [name, value] : request.parameters()) {
    const std::string field = "parameters." + name;
    if (name == "triton_enable_empty_final_response") {
      // The last response is never empty, and says that it is the last.
      if (value.parameter_choice_case() == inference::InferParameter::kBoolParam) continue;
      return InvalidField(field, "must be a bool_param");
    }
    if (name == "timeout") return NotServed(field, "a call's own deadline bounds its time");
    if (name == "priority") return NotServed(field, "requests of this protocol have one priority");
    if (name.rfind("sequence_", 0) == 0) {
      return NotServed(field, "conversations are kept by quire.v1's sessions");
    }
    return NotServed(field, "this server does not know the parameter");
  }
  return absl::OkStatus();
}

absl::Status ChooseOutputs(const inference::ModelInferRequest& request, InferOutputs* outputs) {
  if (request.outputs().empty()) return absl::OkStatus();
  *outputs = {.text = false};
  for (const auto& output : request.outputs()) {
    const std::string field = output.name().empty() ? "outputs" : output.name();
    if (!output.parameters().empty()) {
      return NotServed(field,
                       "outputs have no parameter '" + output.parameters().begin()->first + "'");
    }
    if (output.name() == "text_output") {
      outputs->text = true;
    } else if (output.name() == "finish_reason") {
      outputs->finish_reason = true;
    } else if (output.name() == "num_input_tokens") {
      outputs->num_input_tokens = true;
    } else if (output.name() == "num_output_tokens") {
      outputs->num_output_tokens = true;
    } else {
      return NotServed(field, "the model has no such output; ModelMetadata lists them");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModel(const std::string& name, const std::string& version,
                        const ServingModel& model) {
  if (name.empty()) return InvalidField("model_name", "missing");
  RETURN_IF_ERROR(CheckModelName(name, model));
  if (version.empty() || version == kModelVersion) return absl::OkStatus();
  return Refusal(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
                 "model_version: the model has version 1 alone");
}

absl::Status NamedForInfer(const absl::Status& status) {
  return WithFieldNames(status, kFieldNames);
}

absl::StatusOr<InferRequest> DecodeInfer(const inference::ModelInferRequest& request,
                                         const ServingModel& model, uint64_t seed) {
  RETURN_IF_ERROR(CheckModel(request.model_name(), request.model_version(), model));
  RETURN_IF_ERROR(CheckParameters(request));
  ASSIGN_OR_RETURN(const std::vector<NamedElements> tensors, ReadTensors(request));
  v1::GenerateRequest translated;
  translated.set_model(request.model_name());
  InferSettings settings{.request = &translated};
  for (const NamedElements& tensor : tensors) RETURN_IF_ERROR(ApplyTensor(tensor, &settings));
  if (!translated.has_text()) return InvalidField("text_input", "missing");
  translated.mutable_output()->set_token_ids(false);
  InferRequest decoded;
  decoded.id = request.id();
  decoded.raw = !request.raw_input_contents().empty();
  decoded.stream = settings.stream;
  decoded.outputs = {true, settings.finish_reason, settings.num_input_tokens,
                     settings.num_output_tokens};
  RETURN_IF_ERROR(ChooseOutputs(request, &decoded.outputs));
  ASSIGN_OR_RETURN(decoded.parsed, DecodeGenerate(translated, model, seed));
  return decoded;
}

}  // namespace quire

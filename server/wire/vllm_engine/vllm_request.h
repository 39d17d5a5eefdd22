// VllmRequest: from a GenerateRequest of vllm.grpc.engine to the engine's Request. Refuses by name
// every field that this server cannot honour.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/call/serving_model.h"
#include "server/generate/request_codec.h"

namespace vllm::grpc::engine {
class GenerateRequest;
}

namespace quire {

inline constexpr uint32_t kMaxChoices = 64;

// SamplingParams.n; INVALID_ARGUMENT beyond kMaxChoices.
absl::StatusOr<uint32_t> ChoicesOf(const ::vllm::grpc::engine::GenerateRequest& request);

// The name of an output's request, for Abort and logs: the request's own for the first.
std::string ChoiceId(const std::string& request_id, uint32_t index);

// The request of output `index`, with all fields checked. `seed` is used when the request has none;
// a seed of the request is raised by `index`, so that the outputs differ. INVALID_ARGUMENT names
// the field.
absl::StatusOr<ParsedRequest> DecodeVllm(const ::vllm::grpc::engine::GenerateRequest& request,
                                         const ServingModel& model, uint64_t seed, uint32_t index);

}  // namespace quire

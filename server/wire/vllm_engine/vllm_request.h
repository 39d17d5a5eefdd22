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

// The request of the first output, with all fields checked. `seed` is used when the request has
// none. INVALID_ARGUMENT names the field.
absl::StatusOr<ParsedRequest> DecodeVllm(const ::vllm::grpc::engine::GenerateRequest& request,
                                         const ServingModel& model, uint64_t seed);

}  // namespace quire

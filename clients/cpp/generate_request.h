// ToRequest: the flags of `quire generate` and `quire tokenize` as protobuf requests. Only what was
// said is set: the server owns the defaults.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "clients/cpp/invocation.h"
#include "quire/v1/inference.pb.h"

namespace quire::cli {

// `text` is the prompt or user message; ignored when the flags hold token ids. INVALID_ARGUMENT for
// a
// --logit-bias that is not ID=VALUE.
absl::StatusOr<v1::GenerateRequest> ToRequest(const GenerateFlags& flags,
                                              const std::optional<std::string>& model,
                                              const std::string& text);

v1::TokenizeRequest ToRequest(const TokenizeFlags& flags, const std::optional<std::string>& model,
                              const std::string& text);

}  // namespace quire::cli

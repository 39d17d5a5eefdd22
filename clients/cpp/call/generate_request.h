// ToRequest, ToOptions: the flags of `quire generate`, `quire tokenize` and `quire session` as
// protobuf messages. Flags that were not given set no field: the server owns the defaults.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "clients/cpp/flags/invocation.h"
#include "quire/v1/inference.pb.h"
#include "quire/v1/sessions.pb.h"

namespace quire::cli {

// `chat` is that of ReadChat, `text` the prompt or user message; ignored when the flags hold token
// ids, or messages alone. INVALID_ARGUMENT for a --logit-bias that is not ID=VALUE.
absl::StatusOr<v1::GenerateRequest> ToRequest(const GenerateFlags& flags,
                                              const std::optional<std::string>& model,
                                              const v1::ChatMessages& chat,
                                              const std::string& text);

v1::TokenizeRequest ToRequest(const TokenizeFlags& flags, const std::optional<std::string>& model,
                              const v1::ChatMessages& chat, const std::string& text);

// Nothing when no option was said.
std::optional<v1::SessionOptions> ToOptions(const SessionFlags& flags);

}  // namespace quire::cli

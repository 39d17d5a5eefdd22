// The body of a line in OpenAI's batch format, as a GenerateRequest. docs/jobs.md has the members.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "engine/base/json.h"
#include "quire/v1/inference.pb.h"

namespace quire {

enum class OpenAiCall { kChat, kCompletion };  // /v1/chat/completions, /v1/completions

// `text` is `body` as it is written. INVALID_ARGUMENT names the member: one with a value that it
// cannot have, or one that is not served. A member that is null counts as absent.
absl::Status ReadOpenAiBody(OpenAiCall call, const nlohmann::json& body, std::string_view text,
                            v1::GenerateRequest* request);

}  // namespace quire

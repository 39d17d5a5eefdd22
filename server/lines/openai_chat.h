// The chat of a body in OpenAI's format: messages and tools.
#pragma once

#include "absl/status/status.h"
#include "quire/v1/inference.pb.h"
#include "server/lines/openai_member.h"

namespace quire {

// Each reads the member of its name. INVALID_ARGUMENT names the part that is at fault.
absl::Status ReadMessages(const OpenAiMember& member, v1::GenerateRequest* request);
absl::Status ReadTools(const OpenAiMember& member, v1::GenerateRequest* request);
absl::Status ReadToolChoice(const OpenAiMember& member, v1::GenerateRequest* request);

}  // namespace quire

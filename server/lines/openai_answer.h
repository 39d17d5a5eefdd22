// The result of a line in OpenAI's batch format, as the line of OpenAI's output file that it is:
// {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null}.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "quire/v1/inference.pb.h"
#include "server/lines/openai_body.h"
#include "server/text/tokenizer.h"

namespace quire {

struct OpenAiPlace {
  uint32_t number;  // of the line
  const std::string& custom_id;
  OpenAiCall call;
};

// `tokenizer` writes the tokens of log probabilities; null: they have no text. Nullopt: the line
// would be longer than `max_bytes`, which costs no more than the longest line that is not.
std::optional<std::string> WriteOpenAiAnswer(const OpenAiPlace& place,
                                             const v1::GenerateResult& result,
                                             const Tokenizer* tokenizer, int64_t max_bytes);

// As OpenAI answers a call that failed: a status of HTTP and an error object for a body, which
// names the body's member where `status` names a field.
std::string WriteOpenAiError(const OpenAiPlace& place, const absl::Status& status);

// `status` with the field that it names as the body of such a call has it.
absl::Status WithOpenAiNames(OpenAiCall call, const absl::Status& status);

}  // namespace quire

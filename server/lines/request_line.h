// RequestLine: one line of a file of requests, and the line that is its result. A line is
// {"custom_id": TEXT, "request": GenerateRequest as proto3 JSON}, or one of OpenAI's batch format,
// {"custom_id", "method", "url", "body"}; a result has the form of its line. docs/jobs.md has both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "quire/v1/inference.pb.h"
#include "server/lines/openai_body.h"
#include "server/text/tokenizer.h"

namespace quire {

struct RequestLine {
  uint32_t number = 0;  // in the file, from 1
  std::string custom_id;
  std::optional<OpenAiCall> openai;  // nullopt: a GenerateRequest
  v1::GenerateRequest request;
};

// Reads a line into `line`, which has its number. INVALID_ARGUMENT names the field; what was read
// before the fault, the custom_id and the form above all, is in `line`.
absl::Status ReadRequestLine(std::string_view text, RequestLine* line);

// A result as a line, without a line break: {"custom_id", "line", "result"}, {"custom_id", "line",
// "status"}, or a line of OpenAI's output file.
struct LineResult {
  std::string json;
  absl::Status status;  // OK: there is an answer
};

// `result`: the bytes of a GenerateResult. What is longer than `max_bytes` is RESOURCE_EXHAUSTED
// instead. `tokenizer` is the model's; null: it has none.
LineResult WriteLineResult(const RequestLine& line, const absl::StatusOr<std::string>& result,
                           const Tokenizer* tokenizer, int64_t max_bytes);

}  // namespace quire

// GenerateFrames: the messages that answer Generate and GenerateUnary, as bytes.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "server/generate/stream_outlet.h"

namespace quire {

namespace v1 {
class Timings;
class TokenScore;
class Usage;
}  // namespace v1

// Each makes one GenerateResponse.
std::string EncodeAccepted(const std::string& model_name, const AcceptedFrame& accepted);
std::string EncodeTokens(const OutputDelta& delta, const OutputOptions& output);
std::string EncodeFinished(const EndFrame& end);

// Parts of the above and of other answers.
// `words`: scores one after the other, of ScoreWords(num_top, num_ids) each.
void EncodeScores(std::span<const uint32_t> words, int32_t num_top, int32_t num_ids,
                  google::protobuf::RepeatedPtrField<v1::TokenScore>* out);
void EncodeUsage(const Usage& usage, v1::Usage* out);
// `tokens`: of the output.
void EncodeTimings(const RequestTimings& at, int32_t tokens, v1::Timings* out);

// The one GenerateResult.
std::string EncodeResult(const std::string& model_name, const EndFrame& end);
// Whether a GenerateResult with `output_bytes` of output (OutputDelta::bytes) fits a message.
absl::Status CheckResultSize(int64_t output_bytes, int64_t max_reply_bytes);

}  // namespace quire

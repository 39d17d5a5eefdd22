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

// One of several answers to a request.
struct AnswerPlace {
  uint32_t index = 0;
  const Usage* request_usage = nullptr;  // null: another answer tells it
};

// Each makes one GenerateResponse. A null `place`: of the request's only answer.
std::string EncodeAccepted(const std::string& model_name, const AcceptedFrame& accepted,
                           const AnswerCounts& answers = {});
std::string EncodeTokens(const OutputDelta& delta, const OutputOptions& output,
                         const AnswerPlace* place = nullptr);
std::string EncodeFinished(const EndFrame& end, const AnswerPlace* place = nullptr);

// Parts of the above and of other answers.
// `words`: scores one after the other, of ScoreWords(num_top, num_ids) each.
void EncodeScores(std::span<const uint32_t> words, int32_t num_top, int32_t num_ids,
                  google::protobuf::RepeatedPtrField<v1::TokenScore>* out);
void EncodeUsage(const Usage& usage, v1::Usage* out);
// `tokens`: of the output.
void EncodeTimings(const RequestTimings& at, int32_t tokens, v1::Timings* out);

// Of several answers, the mean log probability of the tokens of one.
double MeanLogprob(const EndFrame& end);

// The one GenerateResult.
std::string EncodeResult(const std::string& model_name, const EndFrame& end);
// The same of one answer or several, by index. `accepted` is the request's, and says what output
// has.
struct AnswerEnds {
  const AcceptedFrame& accepted;
  AnswerCounts counts;
  std::span<const EndFrame> ends;
  Usage request_usage;
};
std::string EncodeResults(const std::string& model_name, const AnswerEnds& answers);
// Whether a GenerateResult with `output_bytes` of output (OutputDelta::bytes) fits a message.
absl::Status CheckResultSize(int64_t output_bytes, int64_t max_reply_bytes);

}  // namespace quire

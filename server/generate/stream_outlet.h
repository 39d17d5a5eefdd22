// StreamOutlet: the protocol's end of a call. A GenerationStream chooses output and time, in the
// engine's values; its outlet makes frames and status codes of them and moves bytes. A second
// protocol is a second outlet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/values/output_sink.h"
#include "engine/values/sampling_params.h"
#include "engine/values/step_reading.h"
#include "server/answer_parts/answer_reader.h"

namespace quire {

// The parts of the output that a client asked for.
struct OutputOptions {
  bool text = true;
  bool token_ids = true;
  bool skip_special_tokens = true;
  AnswerPlan answer;  // how `text` is told apart
  ReadingParams reading;
  int32_t max_guesses = 0;    // of the request, to be echoed
  double detach_seconds = 0;  // that the request may go on without a reader
};

// Answers to one prompt: `best_of` are drawn, and `n` of them returned.
struct AnswerCounts {
  int32_t n = 1;
  int32_t best_of = 1;  // at least n

  bool several() const { return best_of > 1; }
};
inline constexpr uint32_t kMaxAnswers = 128;

// An accepted request with the parameters that apply, to be echoed. Valid during one call.
struct AcceptedFrame {
  const std::string& request_id;
  const SamplingParams& sampling;
  const OutputOptions& output;
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;
  int64_t queue_position = 0;
  int64_t predicted_ttft_ns = 0;  // from the arrival to the first token; 0: not known
};

// Output that is in no frame yet.
struct OutputDelta {
  std::vector<uint32_t> token_ids;
  std::vector<float> logprobs;
  std::string text;
  // Not part of the text, if the answer is told apart.
  std::string reasoning;
  std::vector<ToolCallPart> calls;
  // ScoreWords each, as the request's reading asks: of the tokens, and once, with the first token,
  // of the prompt.
  std::vector<uint32_t> scores;
  std::vector<uint32_t> prompt_scores;
  std::vector<float> pooled;  // with the first token, if the request asks: the hidden state
  uint32_t tokens = 0;        // in this delta
  uint32_t cumulative = 0;    // tokens of the output up to its end

  bool has_text() const { return !text.empty() || !reasoning.empty() || !calls.empty(); }
  // The size that bounds streams: 4 for each id and each log probability, the text's and the
  // scores'.
  int64_t bytes() const;
  // With the readings of the prompt, which come once and are bounded when the request is taken.
  int64_t reply_bytes() const;
  // Appends `from` and clears it.
  void Append(OutputDelta& from);
  void Take(AnswerParts parts);
  void Clear();  // all but `cumulative`
};

// The regular end of a request. Valid during one call.
struct EndFrame {
  const AcceptedFrame& accepted;
  const OutputDelta& rest;  // output that no frame has carried; all of it in a reply of one message
  const FinishEvent& finish;
  const std::string& stop_text;  // the stop string that matched; empty: none matched
  double logprob_sum = 0;        // of finish.usage.completion_tokens tokens
  AnswerTally tally = {};
};

// One write is in flight at most; nothing follows WriteEnd or Fail. Never called with a lock held,
// CheckSize aside.
class StreamOutlet {
 public:
  virtual ~StreamOutlet() = default;
  // These two copy what they need and start a write; GenerationStream::WriteDone follows.
  virtual void WriteAccepted(const AcceptedFrame& accepted) = 0;
  virtual void WriteTokens(const OutputDelta& delta, const OutputOptions& output) = 0;
  // The last frame, and the end of the call.
  virtual void WriteEnd(const EndFrame& end) = 0;
  // Ends the call with an error; also while a write is stuck in flight.
  virtual void Fail(const absl::Status& status) = 0;
  // Tears the call down without waiting for the peer.
  virtual void Reset() = 0;
  // Whether one message can hold `bytes` of output (OutputDelta::bytes); asked of replies that are
  // one message.
  virtual absl::Status CheckSize(int64_t bytes) const = 0;
};

}  // namespace quire

// Order among sequences, and the stop rules on tokens.
#include "engine/schedule/sequence.h"

#include <algorithm>

namespace quire {

bool RunsBefore(const Sequence& a, const Sequence& b) {
  if (a.request->priority != b.request->priority) {
    return a.request->priority > b.request->priority;
  }
  if (a.request->arrival_ns != b.request->arrival_ns) {
    return a.request->arrival_ns < b.request->arrival_ns;
  }
  return a.order < b.order;
}

namespace {

// True if the output ends with some tokens, at most loop_max_tokens, repeated loop_min_repeats
// times. An output that has not ended so far has no long repetition, so few tokens are compared.
bool EndsInLoop(const std::vector<int32_t>& output, const SamplingParams& sampling) {
  const auto size = static_cast<int32_t>(output.size());
  for (int32_t length = 1; length <= sampling.loop_max_tokens; ++length) {
    const int32_t equal = length * (sampling.loop_min_repeats - 1);
    if (equal + length > size) return false;
    if (std::equal(output.rbegin(), output.rbegin() + equal, output.rbegin() + length)) return true;
  }
  return false;
}

}  // namespace

FinishReason StopReason(const Sequence& sequence) {
  const SamplingParams& sampling = sequence.request->sampling;
  const int32_t token = sequence.output.back();
  const auto holds = [token](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (sequence.num_output() > sampling.min_tokens) {
    if (holds(sampling.eos_token_ids)) return FinishReason::kEos;
    if (holds(sampling.stop_token_ids)) return FinishReason::kStopToken;
    if (EndsInLoop(sequence.output, sampling)) return FinishReason::kLoop;
  }
  if (sequence.num_output() >= sampling.max_tokens) {
    return sequence.request->max_tokens_source == MaxTokensSource::kContext
               ? FinishReason::kContextLimit
               : FinishReason::kMaxTokens;
  }
  if (sequence.known() >= sequence.hard_end) return FinishReason::kContextLimit;
  return FinishReason::kNone;
}

}  // namespace quire

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

// Takes the output's last token. True if the output ends with some tokens, at most loop_max_tokens,
// repeated loop_min_repeats times.
bool EndsInLoop(Sequence& sequence) {
  const SamplingParams& sampling = sequence.request->sampling;
  const std::vector<int32_t>& output = sequence.output;
  sequence.equal_before.resize(static_cast<size_t>(sampling.loop_max_tokens));
  const auto last = static_cast<int32_t>(output.size()) - 1;
  bool ends = false;
  for (int32_t length = 1; length <= std::min(sampling.loop_max_tokens, last); ++length) {
    int32_t& equal = sequence.equal_before[static_cast<size_t>(length - 1)];
    equal = output[last] == output[last - length] ? equal + 1 : 0;
    ends = ends || equal >= length * (sampling.loop_min_repeats - 1);
  }
  return ends;
}

}  // namespace

FinishReason TakeToken(Sequence& sequence) {
  const bool loops = EndsInLoop(sequence);
  const SamplingParams& sampling = sequence.request->sampling;
  const int32_t token = sequence.output.back();
  const auto holds = [token](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (sequence.num_output() > sampling.min_tokens) {
    if (holds(sampling.eos_token_ids)) return FinishReason::kEos;
    if (holds(sampling.stop_token_ids)) return FinishReason::kStopToken;
  }
  if (loops && sequence.num_output() >= sampling.min_tokens) return FinishReason::kLoop;
  const bool is_max = sequence.num_output() >= sampling.max_tokens;
  if (!is_max && sequence.known() < sequence.hard_end) return FinishReason::kNone;
  if (sequence.guided() && !sequence.masks.guide->CompletesWith(token))
    return FinishReason::kTruncated;
  const bool is_context =
      !is_max || sequence.request->max_tokens_source == MaxTokensSource::kContext;
  return is_context ? FinishReason::kContextLimit : FinishReason::kMaxTokens;
}

}  // namespace quire

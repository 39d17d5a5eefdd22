// SamplingParams: everything a request may say about how its tokens are chosen and when it stops,
// as plain values. Validate refuses what is out of range or contradicts itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/sampling.h"

namespace quire {

struct SamplingParams {
  SampleRow row;                      // what the device's sampler reads, copied whole
  std::vector<LogitBias> logit_bias;  // at most kMaxLogitBias, by ascending id, each once
  // Never drawn: words, one after the other, the last id of each as ~id. A word of one id is banned
  // everywhere, the last id of a longer one where the ids before it are the last known tokens.
  std::vector<int32_t> bad_words;          // at most kMaxBadWordIds
  std::vector<int32_t> allowed_token_ids;  // at most kMaxAllowedIds; empty: all
  std::vector<int32_t> dry_breaker_ids;    // at most kMaxBreakers
  std::vector<int32_t>
      stop_token_ids;                  // end the sequence; the matched id is part of the output ids
  std::vector<int32_t> eos_token_ids;  // the model's own; empty when ignore_eos
  std::vector<std::string> stop;       // stop strings: the server's text layer matches them
  bool include_stop_in_output = false;  // keep the matched stop string in the text
  bool ignore_eos = false;
  bool logprobs = false;   // report the sampled token's log probability
  int32_t min_tokens = 0;  // no stop or EOS token before this many output tokens
  int32_t max_tokens = 0;  // output tokens; >= 1 once defaults are applied
  // The output ends when it ends with at most loop_max_tokens tokens loop_min_repeats times; 0:
  // off.
  int32_t loop_max_tokens = 0;
  int32_t loop_min_repeats = 8;

  static constexpr int kMaxLogitBias = 1024;
  static constexpr int kMaxBadWordIds = 1024;
  static constexpr int kMaxAllowedIds = 1024;
  static constexpr int kMaxBreakers = 64;
  static constexpr int kMaxLoopTokens = 256;
  static constexpr int kMaxLoopRepeats = 100;
  static constexpr int kMaxStopTokenIds = 64;
  static constexpr int kMaxEosTokenIds = 192;
  static constexpr int kMaxStopStrings = 16;
  static constexpr int kMaxStopStringBytes = 256;

  // OK, or INVALID_ARGUMENT whose message begins with the offending field's proto name and says the
  // valid range. vocab_size bounds every token id.
  absl::Status Validate(int32_t vocab_size) const;
  // The part of Validate that depends on max_tokens, which a default may change later.
  absl::Status ValidateLength() const;
};

}  // namespace quire

// Readings: what a request asks of its steps beside tokens, and what a plan asks of one work. Their
// results are words of 32 bits, laid out by the plan in one array for the step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/score_words.h"

namespace quire {

enum class Pooling : uint8_t {
  kNone,
  kMean,  // of all tokens of the prompt
  kLast,  // the prompt's last token
};

// Of a request.
struct ReadingParams {
  int32_t num_top = -1;  // most likely tokens beside each drawn one; -1: drawn ones have no score
  std::vector<int32_t> ids;  // at most kMaxScoredIds, scored beside each drawn token
  bool processed = false;    // scores of the distribution drawn from, not of the model's
  int32_t prompt_top = -1;   // the same of the prompt's tokens but the first; -1: not scored
  Pooling pooling = Pooling::kNone;  // of the hidden states after the last norm

  bool of_output() const { return num_top >= 0; }
  // Every position of the prompt has to be computed: KV that exists is not used.
  bool of_prompt() const { return prompt_top >= 0 || pooling != Pooling::kNone; }
};

// Of one work of a plan.
struct StepReading {
  enum class Kind : int32_t {
    kDrawn,   // the score of the drawn token
    kPrompt,  // scores of `count` known tokens, one after the other
    kPooled,  // the float32 sum of the hidden states of `count` tokens
  };
  Kind kind = Kind::kDrawn;
  int32_t work = 0;      // index in the plan; readings are in the order of works
  int32_t position = 0;  // of the first token
  int32_t count = 0;
  int32_t num_top = 0;
  int32_t num_ids = 0;
  uint32_t begin = 0;  // [begin, begin + words) of the step's words
  uint32_t words = 0;
};

// Words of a step's readings at most: every token of the step has a score of the prompt, and every
// row the larger of a drawn token's score and a sum of hidden states.
inline constexpr int64_t MaxReadingWords(int32_t max_rows, int32_t max_tokens,
                                         int32_t hidden_size) {
  const int64_t of_row = std::max(ScoreWords(kMaxTopTokens, kMaxScoredIds), hidden_size);
  return int64_t{max_tokens} * ScoreWords(kMaxTopTokens, 0) + max_rows * of_row;
}

}  // namespace quire

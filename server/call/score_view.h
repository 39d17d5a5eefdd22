// ScoreView: a token's score, as readings deliver it (kernels/score_words.h).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/values/step_reading.h"

namespace quire {

// The words outlive it.
class ScoreView {
 public:
  // `words`: ScoreWords(num_top, num_ids) of them.
  ScoreView(std::span<const uint32_t> words, int32_t num_top) : words_(words), asked_(num_top) {
    while (num_top_ < num_top && top_id(num_top_) != kNoToken) ++num_top_;
  }

  uint32_t token_id() const { return words_[0]; }
  float logprob() const { return Number(1); }
  uint32_t rank() const { return words_[2]; }
  // The most likely tokens in the order of ranks: fewer than asked for where fewer are possible.
  int32_t num_top() const { return num_top_; }
  uint32_t top_id(int32_t i) const { return words_[static_cast<size_t>(ScoreWords(i, 0))]; }
  float top_logprob(int32_t i) const { return Number(ScoreWords(i, 1)); }
  // Of the ids that were asked for.
  int32_t num_ids() const { return static_cast<int32_t>(words_.size()) - ScoreWords(asked_, 0); }
  float logprob_of_id(int32_t i) const { return Number(ScoreWords(asked_, i)); }

 private:
  float Number(int32_t word) const {
    return std::bit_cast<float>(words_[static_cast<size_t>(word)]);
  }

  std::span<const uint32_t> words_;
  int32_t asked_;
  int32_t num_top_ = 0;
};

// Calls `take` with each score of `words`, which stand one after the other.
template <typename Take>
void ForEachScore(std::span<const uint32_t> words, int32_t num_top, int32_t num_ids, Take take) {
  const auto each = static_cast<size_t>(ScoreWords(num_top, num_ids));
  for (; !words.empty(); words = words.subspan(each)) take(ScoreView(words.first(each), num_top));
}

}  // namespace quire

// GatheredReadings: a request's readings, put together from the parts that steps tell.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/values/step_reading.h"

namespace quire {

// One thread.
class GatheredReadings {
 public:
  // A request that is preempted computes its prompt again: parts that are known already are passed
  // over, and a sum begins anew.
  void Take(const StepReading& reading, std::span<const uint32_t> words) {
    switch (reading.kind) {
      case StepReading::Kind::kDrawn:
        drawn_.insert(drawn_.end(), words.begin(), words.end());
        break;
      case StepReading::Kind::kPrompt: TakeScores(reading, words); break;
      case StepReading::Kind::kPooled: TakeSum(reading, words); break;
    }
    if (reading.kind == StepReading::Kind::kDrawn) drawn_words_ = reading.words;
  }

  // Moves the score of the next token behind `scores`.
  void TakeDrawn(std::vector<uint32_t>& scores) {
    const auto begin = drawn_.begin() + static_cast<std::ptrdiff_t>(drawn_begin_);
    scores.insert(scores.end(), begin, begin + static_cast<std::ptrdiff_t>(drawn_words_));
    drawn_begin_ += drawn_words_;
    if (drawn_begin_ < drawn_.size()) return;
    drawn_.clear();
    drawn_begin_ = 0;
  }

  // Moves the prompt's readings out, which are complete before the first token: its scores, and the
  // mean of the pooled hidden states. Empty where the request asked for none.
  void TakePrompt(std::vector<uint32_t>& scores, std::vector<float>& mean) {
    scores.swap(prompt_);
    mean.clear();
    for (const double sum : sum_) mean.push_back(static_cast<float>(sum / summed_));
  }

 private:
  // The scores of `count` tokens from `position` on, of which the first may be known.
  void TakeScores(const StepReading& reading, std::span<const uint32_t> words) {
    const int32_t known = scored_ - (reading.position - 1);
    if (known < 0 || known >= reading.count) return;
    const auto each = static_cast<size_t>(ScoreWords(reading.num_top, 0));
    const std::span<const uint32_t> fresh = words.subspan(static_cast<size_t>(known) * each);
    prompt_.insert(prompt_.end(), fresh.begin(), fresh.end());
    scored_ = reading.position - 1 + reading.count;
  }

  void TakeSum(const StepReading& reading, std::span<const uint32_t> words) {
    if (reading.position != pooled_end_) {
      sum_.clear();
      summed_ = 0;
    }
    sum_.resize(words.size());
    for (size_t i = 0; i < words.size(); ++i) sum_[i] += std::bit_cast<float>(words[i]);
    summed_ += reading.count;
    pooled_end_ = reading.position + reading.count;
  }

  std::vector<uint32_t> drawn_;  // scores of tokens that have not been taken
  size_t drawn_begin_ = 0;
  size_t drawn_words_ = 0;  // of one score
  std::vector<uint32_t> prompt_;
  int32_t scored_ = 0;  // scores in prompt_, ever
  std::vector<double> sum_;
  int32_t summed_ = 0;  // hidden states in it
  int32_t pooled_end_ = 0;
};

}  // namespace quire

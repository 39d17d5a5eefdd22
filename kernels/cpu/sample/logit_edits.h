// LogitEdits: what a job changes in its row of logits before the draw (kernels/sampling.h): its
// mask, biases, bans, penalties and DRY, in this order. It remembers the raw logits of the tokens
// it changes.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "kernels/sampling.h"
#include "kernels/sampling_math.h"

namespace quire::cpu {

// One per thread, for one row after another, so that large vocabularies cost no allocation.
class LogitEdits {
 public:
  // Edits logits [vocab] in place. True if the job asks for any edit.
  bool Apply(const SampleJob& job, float* logits, int64_t vocab) {
    logits_ = logits;
    vocab_ = vocab;
    touched_.clear();
    if (job.mask != nullptr) KeepMasked(job.mask);
    for (const LogitBias& b : Span(job.bias, job.num_bias)) Touch(b.token) += b.bias;
    for (const int32_t token : Span(job.banned, job.num_banned)) Touch(token) = kLeast;
    BanEndsOfWords(job);
    if (job.num_allowed > 0) KeepAllowed(job);
    const SampleRow& row = job.params;
    if (row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f ||
        row.frequency_penalty != 0.0f) {
      Penalise(job);
    }
    if (row.dry_multiplier > 0.0f) PenaliseRepeats(job);
    return !touched_.empty() || job.num_allowed > 0 || job.mask != nullptr;
  }

  // The logit of a possible token before any edit: the first record of a token has it.
  float Raw(int32_t token) const {
    for (const auto& [touched, raw] : touched_) {
      if (touched == token) return raw;
    }
    return logits_[token];
  }

 private:
  static constexpr float kLeast = -std::numeric_limits<float>::infinity();

  template <typename T>
  static std::span<const T> Span(const T* first, int32_t count) {
    return {first, static_cast<size_t>(count)};
  }

  float& Touch(int32_t token) {
    CHECK(token >= 0 && token < vocab_);
    touched_.emplace_back(token, logits_[token]);
    return logits_[token];
  }

  void KeepMasked(const uint32_t* mask) {
    for (int64_t first = 0; first < vocab_; first += 32) {
      const uint32_t word = mask[first / 32];
      const int64_t count = std::min<int64_t>(32, vocab_ - first);
      if (word == 0) std::fill_n(logits_ + first, count, kLeast);
      if (word == 0 || word == ~0u) continue;
      for (int64_t i = 0; i < count; ++i) {
        if ((word >> i & 1) == 0) logits_[first + i] = kLeast;
      }
    }
  }

  void BanEndsOfWords(const SampleJob& job) {
    int32_t begin = 0;
    for (int32_t i = 0; i < job.num_bad_words; ++i) {
      if (job.bad_words[i] >= 0) continue;
      const int32_t before = i - begin;
      const int32_t* word = job.bad_words + begin;
      begin = i + 1;
      if (before > job.num_known) continue;
      if (!std::equal(word, word + before, job.tokens + job.num_known - before)) continue;
      Touch(~word[before]) = kLeast;
    }
  }

  void KeepAllowed(const SampleJob& job) {
    kept_.clear();
    for (const int32_t token : Span(job.allowed, job.num_allowed)) {
      CHECK(token >= 0 && token < vocab_);
      kept_.emplace_back(token, logits_[token]);
    }
    std::fill_n(logits_, vocab_, kLeast);
    for (const auto& [token, logit] : kept_) logits_[token] = logit;
  }

  void Penalise(const SampleJob& job) {
    // counts_[token]: 2 for each occurrence in the output, plus 1 if the token occurs at all.
    if (static_cast<int64_t>(counts_.size()) < vocab_) counts_.resize(vocab_, 0);
    for (int32_t i = 0; i < job.num_known; ++i) {
      CHECK(job.tokens[i] >= 0 && job.tokens[i] < vocab_);
      int32_t& count = counts_[job.tokens[i]];
      count = (count + (i >= job.num_prompt ? 2 : 0)) | 1;
    }
    for (int32_t i = 0; i < job.num_known; ++i) {
      const int32_t count = std::exchange(counts_[job.tokens[i]], 0);
      if (count == 0) continue;
      float& logit = Touch(job.tokens[i]);
      const float penalty = job.params.repetition_penalty;
      logit = logit > 0.0f ? logit / penalty : logit * penalty;
      if (count < 2) continue;
      logit -= job.params.frequency_penalty * static_cast<float>(count / 2);
      logit -= job.params.presence_penalty;
    }
  }

  void PenaliseRepeats(const SampleJob& job) {
    const SampleRow& row = job.params;
    const auto breaks = [&](int32_t token) {
      const auto breakers = Span(job.breakers, job.num_breakers);
      return std::find(breakers.begin(), breakers.end(), token) != breakers.end();
    };
    const int32_t known = job.num_known;
    const int32_t first = row.dry_last_n > 0 ? std::max(known - row.dry_last_n, 0) : 0;
    const int32_t* last = job.tokens + known - 1;
    int32_t most = 0;  // the known tokens since the last breaker
    while (most < std::min(kDryMostTokens, known - first) && !breaks(last[-most])) ++most;
    kept_.clear();
    for (int32_t i = first; i < known; ++i) {
      const int32_t* before = job.tokens + i - 1;
      int32_t length = 0;
      while (length < std::min(most, i - first) && before[-length] == last[-length]) ++length;
      if (length < row.dry_allowed_length || breaks(job.tokens[i])) continue;
      kept_.emplace_back(job.tokens[i], DryPenalty(row.dry_multiplier, row.dry_base, length,
                                                   row.dry_allowed_length));
    }
    // Of a token's penalties the largest counts.
    std::sort(kept_.begin(), kept_.end(), std::greater<>());
    int32_t done = -1;
    for (const auto& [token, penalty] : kept_) {
      if (token != done) Touch(token) -= penalty;
      done = token;
    }
  }

  float* logits_ = nullptr;
  int64_t vocab_ = 0;
  std::vector<std::pair<int32_t, float>> touched_, kept_;
  std::vector<int32_t> counts_;  // all zero between rows
};

}  // namespace quire::cpu

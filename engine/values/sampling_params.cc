// The ranges of every sampling and stop parameter; nothing else in the tree states them.
#include "engine/values/sampling_params.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/status_macros.h"

namespace quire {
namespace {

absl::Status Bad(const std::string& field, const std::string& why) {
  return absl::InvalidArgumentError(field + " " + why);
}

std::string Text(float value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", static_cast<double>(value));
  return text;
}

// low <= value <= high, and not NaN.
absl::Status CheckRange(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(field, "must be between " + Text(low) + " and " + Text(high) + ", not " + Text(value));
}

// 0 < value <= high, and not NaN.
absl::Status CheckPositive(const char* field, float value, float high) {
  if (value > 0 && value <= high) return absl::OkStatus();
  return Bad(field, "must be above 0 and at most " + Text(high) + ", not " + Text(value));
}

absl::Status CheckIds(const char* field, const std::vector<int32_t>& ids, int32_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return Bad(field, "holds token id " + std::to_string(id) + "; ids are in [0, " +
                            std::to_string(vocab_size) + ")");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLogitBias(const std::vector<LogitBias>& entries, int32_t vocab_size) {
  if (entries.size() > SamplingParams::kMaxLogitBias) {
    return Bad("logit_bias", "has " + std::to_string(entries.size()) + " entries; at most " +
                                 std::to_string(SamplingParams::kMaxLogitBias) + " are allowed");
  }
  std::vector<int32_t> ids;
  ids.reserve(entries.size());
  for (const LogitBias& entry : entries) {
    if (!(entry.bias >= -100.0f && entry.bias <= 100.0f)) {
      return Bad("logit_bias", "of token " + std::to_string(entry.token) +
                                   " must be between -100 and 100, not " + Text(entry.bias));
    }
    ids.push_back(entry.token);
  }
  RETURN_IF_ERROR(CheckIds("logit_bias", ids, vocab_size));
  std::sort(ids.begin(), ids.end());
  if (std::adjacent_find(ids.begin(), ids.end()) != ids.end()) {
    return Bad("logit_bias", "names a token id twice");
  }
  return absl::OkStatus();
}

absl::Status CheckStop(const SamplingParams& params) {
  if (params.stop.size() > SamplingParams::kMaxStopStrings) {
    return Bad("stop", "has " + std::to_string(params.stop.size()) + " strings; at most " +
                           std::to_string(SamplingParams::kMaxStopStrings) + " are allowed");
  }
  for (const std::string& text : params.stop) {
    if (text.empty() || text.size() > SamplingParams::kMaxStopStringBytes) {
      return Bad("stop", "strings must have 1 to " +
                             std::to_string(SamplingParams::kMaxStopStringBytes) + " bytes, not " +
                             std::to_string(text.size()));
    }
  }
  if (params.stop_token_ids.size() > SamplingParams::kMaxStopTokenIds) {
    return Bad("stop_token_ids",
               "has " + std::to_string(params.stop_token_ids.size()) + " ids; at most " +
                   std::to_string(SamplingParams::kMaxStopTokenIds) + " are allowed");
  }
  return absl::OkStatus();
}

// Before min_tokens are there, no EOS and no stop id may be sampled: some token must be left.
absl::Status CheckSomeTokenIsLeft(const SamplingParams& params, int32_t vocab_size) {
  std::vector<int32_t> banned = params.eos_token_ids;
  banned.insert(banned.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  if (params.min_tokens == 0 || banned.size() < static_cast<size_t>(vocab_size)) {
    return absl::OkStatus();
  }
  std::ranges::sort(banned);
  const auto repeated = std::ranges::unique(banned);
  if (static_cast<int32_t>(repeated.begin() - banned.begin()) < vocab_size) {
    return absl::OkStatus();
  }
  return Bad("min_tokens", "must be 0 where the EOS and stop ids are all " +
                               std::to_string(vocab_size) + " tokens of the vocabulary, not " +
                               std::to_string(params.min_tokens));
}

}  // namespace

absl::Status SamplingParams::Validate(int32_t vocab_size) const {
  RETURN_IF_ERROR(CheckRange("temperature", row.temperature, 0, 100));
  if (row.top_k < 0 || row.top_k > vocab_size) {
    return Bad("top_k", "must be between 0 (off) and the vocabulary's " +
                            std::to_string(vocab_size) + ", not " + std::to_string(row.top_k));
  }
  RETURN_IF_ERROR(CheckPositive("top_p", row.top_p, 1));
  RETURN_IF_ERROR(CheckRange("min_p", row.min_p, 0, 1));
  // Dividing by much less would make infinities of ordinary logits.
  RETURN_IF_ERROR(CheckRange("repetition_penalty", row.repetition_penalty, 0.01f, 10));
  RETURN_IF_ERROR(CheckRange("presence_penalty", row.presence_penalty, -2, 2));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", row.frequency_penalty, -2, 2));
  RETURN_IF_ERROR(CheckLogitBias(logit_bias, vocab_size));
  RETURN_IF_ERROR(CheckStop(*this));
  RETURN_IF_ERROR(CheckIds("stop_token_ids", stop_token_ids, vocab_size));
  RETURN_IF_ERROR(CheckIds("eos_token_ids", eos_token_ids, vocab_size));
  RETURN_IF_ERROR(CheckSomeTokenIsLeft(*this, vocab_size));
  return ValidateLength();
}

absl::Status SamplingParams::ValidateLength() const {
  if (max_tokens < 1) return Bad("max_tokens", "must be at least 1");
  if (min_tokens < 0 || min_tokens > max_tokens) {
    return Bad("min_tokens", "must be between 0 and max_tokens (" + std::to_string(max_tokens) +
                                 "), not " + std::to_string(min_tokens));
  }
  return absl::OkStatus();
}

}  // namespace quire

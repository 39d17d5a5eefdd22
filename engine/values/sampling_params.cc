// The ranges of lists and of stop parameters, and what contradicts what.
#include "engine/values/sampling_params.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/status_macros.h"
#include "engine/values/sampling_fields.h"

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

absl::Status CheckRange(const SamplingField& field, const SampleRow& row) {
  const double value = field.Of(row);
  if (field.InRange(value)) return absl::OkStatus();
  const std::string low = Text(static_cast<float>(field.low));
  const std::string high = Text(static_cast<float>(field.high));
  const std::string range =
      field.above_low ? "above " + low + " and at most " + high : "between " + low + " and " + high;
  return Bad(field.name, "must be " + range + ", not " + Text(static_cast<float>(value)));
}

absl::Status CheckCount(const std::string& field, size_t count, int most) {
  if (count <= static_cast<size_t>(most)) return absl::OkStatus();
  return Bad(field, "has " + std::to_string(count) + " ids; at most " + std::to_string(most) +
                        " are allowed");
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

absl::Status CheckLoop(const SamplingParams& params) {
  if (params.loop_max_tokens < 0 || params.loop_max_tokens > SamplingParams::kMaxLoopTokens) {
    return Bad("loop_max_tokens", "must be between 0 (off) and " +
                                      std::to_string(SamplingParams::kMaxLoopTokens) + ", not " +
                                      std::to_string(params.loop_max_tokens));
  }
  if (params.loop_min_repeats < 2 || params.loop_min_repeats > SamplingParams::kMaxLoopRepeats) {
    return Bad("loop_min_repeats", "must be between 2 and " +
                                       std::to_string(SamplingParams::kMaxLoopRepeats) + ", not " +
                                       std::to_string(params.loop_min_repeats));
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

// The ids that may be banned at some position, by stop and end tokens before min_tokens or by bad
// words, ascending.
std::vector<int32_t> MayBeBanned(const SamplingParams& params) {
  std::vector<int32_t> banned;
  if (params.min_tokens > 0) {
    banned = params.eos_token_ids;
    banned.insert(banned.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  }
  for (const int32_t id : params.bad_words) {
    if (id < 0) banned.push_back(~id);
  }
  std::ranges::sort(banned);
  banned.erase(std::ranges::unique(banned).begin(), banned.end());
  return banned;
}

// Some token must be left at every position.
absl::Status CheckSomeTokenIsLeft(const SamplingParams& params, int32_t vocab_size) {
  const std::vector<int32_t> banned = MayBeBanned(params);
  const std::vector<int32_t>& allowed = params.allowed_token_ids;
  if (!allowed.empty()) {
    const auto is_banned = [&](int32_t id) { return std::ranges::binary_search(banned, id); };
    if (!std::ranges::all_of(allowed, is_banned)) return absl::OkStatus();
    return Bad(
        "allowed_token_ids",
        "holds only ids that are banned, that bad words end with or that min_tokens bans; allow "
        "one more");
  }
  if (static_cast<int32_t>(banned.size()) < vocab_size) return absl::OkStatus();
  if (!params.bad_words.empty())
    return Bad("bad_word_ids", "may ban every token of the vocabulary");
  return Bad("min_tokens", "must be 0 where the EOS and stop ids are all " +
                               std::to_string(vocab_size) + " tokens of the vocabulary, not " +
                               std::to_string(params.min_tokens));
}

absl::Status CheckLists(const SamplingParams& params, int32_t vocab_size) {
  RETURN_IF_ERROR(
      CheckCount("bad_word_ids", params.bad_words.size(), SamplingParams::kMaxBadWordIds));
  std::vector<int32_t> ids = params.bad_words;
  for (int32_t& id : ids) id = id < 0 ? ~id : id;
  RETURN_IF_ERROR(CheckIds("bad_word_ids", ids, vocab_size));
  RETURN_IF_ERROR(CheckCount("allowed_token_ids", params.allowed_token_ids.size(),
                             SamplingParams::kMaxAllowedIds));
  RETURN_IF_ERROR(CheckIds("allowed_token_ids", params.allowed_token_ids, vocab_size));
  RETURN_IF_ERROR(
      CheckCount("dry_breaker_ids", params.dry_breaker_ids.size(), SamplingParams::kMaxBreakers));
  return CheckIds("dry_breaker_ids", params.dry_breaker_ids, vocab_size);
}

// Parameters that contradict each other.
absl::Status CheckTogether(const SampleRow& row) {
  if (row.dynatemp_range > row.temperature) {
    return Bad("dynatemp_range", "must be at most the temperature, " + Text(row.temperature) +
                                     ", not " + Text(row.dynatemp_range));
  }
  if (row.xtc_probability > 0 && row.temperature == 0) {
    return Bad("xtc_probability",
               "needs a temperature above 0: at 0 the likeliest token is always taken");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SamplingParams::Validate(int32_t vocab_size) const {
  if (row.top_k < 0 || row.top_k > vocab_size) {
    return Bad("top_k", "must be between 0 (off) and the vocabulary's " +
                            std::to_string(vocab_size) + ", not " + std::to_string(row.top_k));
  }
  for (const SamplingField& field : SamplingFields()) RETURN_IF_ERROR(CheckRange(field, row));
  RETURN_IF_ERROR(CheckTogether(row));
  RETURN_IF_ERROR(CheckLists(*this, vocab_size));
  RETURN_IF_ERROR(CheckLogitBias(logit_bias, vocab_size));
  RETURN_IF_ERROR(CheckStop(*this));
  RETURN_IF_ERROR(CheckLoop(*this));
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

// Admission: the checks of the engine before it accepts a request: the length against the context,
// and the room in the queue.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/values/request.h"

namespace quire {

struct ContextLimit {
  int64_t max_model_len = 0;  // the model's context
  int64_t kv_tokens = 0;      // that the KV pool can hold

  int64_t tokens() const { return std::min(max_model_len, kv_tokens); }
  // The smaller of the two bounds, in words.
  std::string Text() const;
};

// INVALID_ARGUMENT, which begins with "token id", unless all ids of the prompt, of a turn's frame
// included, are below `vocab_size`: a tokenizer may know more tokens than the model. 0: not
// checked.
absl::Status CheckTokenIds(const Request& request, int32_t vocab_size);

// Checks prompt and max_tokens of `request` against the limit, and cuts a default max_tokens to the
// room after the prompt. Requires the complete prompt and validated parameters. INVALID_ARGUMENT
// names the field as SamplingParams::Validate does; the prompt's field is "prompt".
absl::Status FitToContext(const ContextLimit& limit, Request& request);

// The KV pool, as several answers to one prompt take it.
struct AnswersLimit {
  int64_t kv_blocks = 0;
  int32_t block_size = 0;     // tokens
  bool shares_prompt = true;  // the full blocks of the prompt are held once
};

// Checks that `answers` requests like this one, which FitToContext accepts, can run at once to
// their max_tokens, if a client chose that: answers with a default may take turns.
// INVALID_ARGUMENT; the message begins with what they need.
absl::Status FitTogether(const AnswersLimit& limit, const Request& request, int32_t answers);

// UNAVAILABLE; the message has the numbers of waiting requests and tokens.
absl::Status QueueFull(int64_t requests, int64_t prompt_tokens);

}  // namespace quire

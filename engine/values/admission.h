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

// Checks prompt and max_tokens of `request` against the limit, and cuts a default max_tokens to the
// room after the prompt. Requires the complete prompt and validated parameters. INVALID_ARGUMENT
// names the field as SamplingParams::Validate does; the prompt's field is "prompt".
absl::Status FitToContext(const ContextLimit& limit, Request& request);

// UNAVAILABLE; the message has the numbers of waiting requests and tokens.
absl::Status QueueFull(int64_t requests, int64_t prompt_tokens);

}  // namespace quire

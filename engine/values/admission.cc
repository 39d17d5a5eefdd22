// The length check of a request, for prompts that a client sent and for those that a turn
// completes.
#include "engine/values/admission.h"

namespace quire {

std::string ContextLimit::Text() const {
  return kv_tokens < max_model_len ? "the KV cache of " + std::to_string(kv_tokens) + " tokens"
                                   : "the context of " + std::to_string(max_model_len) + " tokens";
}

absl::Status FitToContext(const ContextLimit& limit, Request& request) {
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t room = limit.tokens() - prompt;
  if (room < 1) {
    return absl::InvalidArgumentError("prompt has " + std::to_string(prompt) + " tokens; " +
                                      limit.Text() + " leaves no room for output; " +
                                      (request.session_turn.has_value()
                                           ? "truncate the session, or start another"
                                           : "shorten the prompt"));
  }
  SamplingParams& sampling = request.sampling;
  if (sampling.max_tokens > room && request.max_tokens_source == MaxTokensSource::kClient) {
    return absl::InvalidArgumentError("max_tokens " + std::to_string(sampling.max_tokens) +
                                      " and the prompt's " + std::to_string(prompt) +
                                      " tokens exceed " + limit.Text() + "; ask for at most " +
                                      std::to_string(room));
  }
  if (sampling.max_tokens > room) {
    sampling.max_tokens = static_cast<int32_t>(room);
    request.max_tokens_source = MaxTokensSource::kContext;
  }
  return sampling.ValidateLength();
}

absl::Status QueueFull(int64_t requests, int64_t prompt_tokens) {
  return absl::UnavailableError("the queue is full (" + std::to_string(requests) + " requests, " +
                                std::to_string(prompt_tokens) +
                                " prompt tokens waiting); retry later");
}

}  // namespace quire

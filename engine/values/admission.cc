// The length check of a request, for prompts that a client sent and for those that a turn
// completes.
#include "engine/values/admission.h"

namespace quire {

std::string ContextLimit::Text() const {
  return kv_tokens < max_model_len ? "the KV cache of " + std::to_string(kv_tokens) + " tokens"
                                   : "the context of " + std::to_string(max_model_len) + " tokens";
}

absl::Status CheckTokenIds(const Request& request, int32_t vocab_size) {
  int32_t largest = -1;
  for (const int32_t id : request.prompt) largest = std::max(largest, id);
  if (request.session_turn.has_value()) {
    for (const int32_t id : request.session_turn->prefix) largest = std::max(largest, id);
    for (const int32_t id : request.session_turn->suffix) largest = std::max(largest, id);
  }
  if (vocab_size == 0 || largest < vocab_size) return absl::OkStatus();
  return absl::InvalidArgumentError("token id " + std::to_string(largest) +
                                    " of the prompt is outside the model's vocabulary [0, " +
                                    std::to_string(vocab_size) + ")");
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

absl::Status FitTogether(const AnswersLimit& limit, const Request& request, int32_t answers) {
  if (answers == 1 || request.max_tokens_source != MaxTokensSource::kClient) {
    return absl::OkStatus();
  }
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  // The last token is never computed.
  const int64_t end = prompt + request.sampling.max_tokens - 1;
  const int64_t blocks = (end + limit.block_size - 1) / limit.block_size;
  const int64_t shared = limit.shares_prompt ? (prompt - 1) / limit.block_size : 0;
  const int64_t needed = shared + answers * (blocks - shared);
  if (needed <= limit.kv_blocks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      std::to_string(answers) + " answers of up to " + std::to_string(request.sampling.max_tokens) +
      " tokens to a prompt of " + std::to_string(prompt) + " need " +
      std::to_string(needed * limit.block_size) + " tokens of KV cache together; the server has " +
      std::to_string(limit.kv_blocks * limit.block_size) +
      "; ask for fewer answers or a smaller max_tokens");
}

absl::Status QueueFull(int64_t requests, int64_t prompt_tokens) {
  return absl::UnavailableError("the queue is full (" + std::to_string(requests) + " requests, " +
                                std::to_string(prompt_tokens) +
                                " prompt tokens waiting); retry later");
}

}  // namespace quire

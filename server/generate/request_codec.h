// RequestCodec: proto to engine structs and back. Every field check that needs no tokenizer happens
// in DecodeGenerate; what depends on the prompt's length happens in FitPrompt. Behind this door a
// request is valid.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/values/output_sink.h"
#include "engine/values/sampling_params.h"
#include "server/call/serving_model.h"

namespace quire {

namespace v1 {
class Accepted;
class ChatMessages;
class Finished;
class GenerateRequest;
}  // namespace v1

// A request in the engine's words, before and after its prompt is complete.
struct GenerationAsk {
  enum class Prompt : uint8_t { kText, kTokenIds, kChat };
  std::string request_id;  // as the client chose; empty: the server makes one
  Prompt kind = Prompt::kText;
  std::string text;                   // kText
  std::vector<ChatMessage> messages;  // kChat
  bool add_generation_prompt = true;
  bool add_special_tokens = true;
  std::vector<int32_t> prompt;  // given for kTokenIds, else filled by TokenizePrompt
  SamplingParams sampling;      // max_tokens is 0 until FitPrompt when the client left it out
  bool until_context = false;   // nobody named max_tokens: it is what the context has room for
  bool send_text = true;
  bool send_token_ids = true;
  bool skip_special_tokens = true;
  int32_t priority = 0;
  bool bypass_cache = false;
  std::string session_id;  // a turn of it; empty: none
  std::optional<uint32_t> expected_position;
  bool create_session = false;
  // What the tokenizer puts around a text: in a session only around the first.
  std::vector<int32_t> text_head, text_foot;

  // Bytes of text still to be tokenised.
  size_t TextBytes() const;
};

// NOT_FOUND (ErrorInfo MODEL_NOT_FOUND) unless `name` is served.
absl::Status CheckModelName(const std::string& name, const ServingModel& model);

// `seed` is used when the request has none. Errors: INVALID_ARGUMENT with the field, NOT_FOUND,
// FAILED_PRECONDITION for a chat without a template.
absl::StatusOr<GenerationAsk> DecodeGenerate(const v1::GenerateRequest& request,
                                             const ServingModel& model, uint64_t seed);

// Renders and tokenises the prompt. Costs time linear in the text: not for gRPC's threads.
absl::Status TokenizePrompt(const ServingModel& model, GenerationAsk* ask);

// Puts the session's tokens before what a turn appends (a chat is the whole conversation already),
// checks the prompt against the context and the KV pool, and gives max_tokens its default.
absl::Status FitPrompt(const ServingModel& model, std::vector<int32_t> session_tokens,
                       GenerationAsk* ask);

// Messages to the model's prompt text, by its own template.
absl::Status DecodeChat(const v1::ChatMessages& chat, const ServingModel& model,
                        std::vector<ChatMessage>* messages);
absl::StatusOr<std::string> RenderChat(const std::vector<ChatMessage>& messages,
                                       bool add_generation_prompt, const ServingModel& model);

// Ids as the engine knows them; INVALID_ARGUMENT naming `field` for one outside the vocabulary.
absl::Status DecodeTokenIds(const std::string& field, std::span<const uint32_t> ids,
                            const ServingModel& model, std::vector<int32_t>* out);

// The effective parameters, echoed.
void EncodeAccepted(const GenerationAsk& ask, const std::string& model_name, int64_t queue_position,
                    v1::Accepted* accepted);
void EncodeFinished(const FinishEvent& event, const std::string& stop_text, v1::Finished* finished);

}  // namespace quire

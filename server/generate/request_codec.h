// RequestCodec: from a GenerateRequest to the engine's Request. DecodeGenerate checks every field
// that needs no tokenizer; the engine checks the length of the complete prompt
// (engine/values/admission.h). Past these a request is valid.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/values/request.h"
#include "server/call/serving_model.h"
#include "server/generate/stream_outlet.h"
#include "server/structured/structured_codec.h"

namespace quire {

namespace v1 {
class ChatMessages;
class GenerateRequest;
}  // namespace v1

// A request as its client meant it, with every field checked that needs neither a tokenizer nor a
// look into a chat's texts.
struct ParsedRequest {
  enum class Prompt : uint8_t { kText, kTokenIds, kChat };
  std::string request_id;  // the client's choice; empty: the server makes one
  std::string model;       // the served name that the client asked for; empty: any
  Prompt kind = Prompt::kText;
  std::string text;                              // kText
  std::shared_ptr<const v1::ChatMessages> chat;  // kChat, as it came: its values take more memory
  bool add_special_tokens = true;
  OutputOptions output;
  AnswerCounts answers;
  std::optional<Structure> structure;  // GuideMaker makes it the request's guide
  // For the engine. Its prompt is complete for kTokenIds; otherwise TokenizePrompt fills it.
  std::unique_ptr<Request> request;

  // Bytes of text still to be tokenised.
  size_t TextBytes() const;
};

// NOT_FOUND (ErrorInfo MODEL_NOT_FOUND) unless `name` is served.
absl::Status CheckModelName(const std::string& name, const ServingModel& model);

// OK, or INVALID_ARGUMENT where the scores of the prompt take more bytes than one message.
absl::Status CheckReadings(const Request& request, int64_t max_reply_bytes);

// `seed` is used when the request has none. Errors: INVALID_ARGUMENT with the field, NOT_FOUND,
// FAILED_PRECONDITION for a chat without a template.
absl::StatusOr<ParsedRequest> DecodeGenerate(const v1::GenerateRequest& request,
                                             const ServingModel& model, uint64_t seed);

// Tokens that a request guesses ahead at most, and if it does not say (--speculate).
int32_t MostGuesses(const ServingModel& model);

// OK, or INVALID_ARGUMENT for a priority outside [-kMaxPriority, kMaxPriority].
absl::Status CheckPriority(int32_t priority);

// OK if the server has a tokenizer; else FAILED_PRECONDITION (ErrorInfo NO_TOKENIZER) for `field`.
absl::Status NeedTokenizer(const std::string& field, const ServingModel& model);

// Reads and renders a chat, tokenises the prompt, and gives up the text. Costs time linear in the
// text, and the time limit of a template (jinja/values/budget.h): not for gRPC's threads. Without a
// tokenizer the output has no text, and what needs text is refused.
absl::Status TokenizePrompt(const ServingModel& model, ParsedRequest* parsed);

// Ids as the engine knows them; INVALID_ARGUMENT naming `field` for one outside the vocabulary.
absl::Status DecodeTokenIds(const std::string& field, std::span<const uint32_t> ids,
                            const ServingModel& model, std::vector<int32_t>* out);

}  // namespace quire

// Checks every field of a client's request, once and in one place.
#include "server/generate/request_codec.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/chat_codec.h"
#include "server/call/sampling_codec.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"
#include "server/generate/refusals.h"
#include "server/structured/answer_codec.h"

namespace quire {
namespace {

void DecodeStop(const v1::StopConditions& in, const std::vector<int32_t>& eos,
                SamplingParams* out) {
  out->max_tokens = Narrow(in.max_tokens());
  out->min_tokens = Narrow(in.min_tokens());
  out->stop.assign(in.stop().begin(), in.stop().end());
  for (const uint32_t id : in.stop_token_ids()) out->stop_token_ids.push_back(Narrow(id));
  out->include_stop_in_output = in.include_stop_in_output();
  out->ignore_eos = in.ignore_eos();
  out->loop_max_tokens = Narrow(in.loop_max_tokens());
  if (in.has_loop_min_repeats()) out->loop_min_repeats = Narrow(in.loop_min_repeats());
  if (!out->ignore_eos) out->eos_token_ids = eos;
}

absl::Status DecodeOutput(const v1::OutputOptions& in, ParsedRequest* parsed) {
  OutputOptions& output = parsed->output;
  output.text = !in.has_text() || in.text();
  output.token_ids = !in.has_token_ids() || in.token_ids();
  output.skip_special_tokens = !in.has_skip_special_tokens() || in.skip_special_tokens();
  parsed->request->sampling.logprobs = in.logprobs();
  if (!output.text && !output.token_ids) {
    return InvalidField("output", "text and token_ids are both off; ask for at least one");
  }
  return absl::OkStatus();
}

absl::Status DecodeReading(const v1::OutputOptions& in, int32_t vocab_size, ReadingParams* out) {
  const auto check_top = [](const char* field, uint32_t value) {
    if (value <= static_cast<uint32_t>(kMaxTopTokens)) return absl::OkStatus();
    return InvalidField(field, "must be at most " + std::to_string(kMaxTopTokens) + ", not " +
                                   std::to_string(value));
  };
  RETURN_IF_ERROR(check_top("output.top_logprobs", in.top_logprobs()));
  RETURN_IF_ERROR(check_top("output.prompt_logprobs", in.prompt_logprobs()));
  if (in.logprob_token_ids().size() > kMaxScoredIds) {
    return InvalidField("output.logprob_token_ids",
                        "has " + std::to_string(in.logprob_token_ids().size()) + " ids; at most " +
                            std::to_string(kMaxScoredIds) + " are allowed");
  }
  for (const uint32_t id : in.logprob_token_ids()) {
    if (id >= static_cast<uint32_t>(vocab_size)) {
      return InvalidField("output.logprob_token_ids", "holds token id " + std::to_string(id) +
                                                          "; ids are in [0, " +
                                                          std::to_string(vocab_size) + ")");
    }
    out->ids.push_back(static_cast<int32_t>(id));
  }
  out->processed = in.processed_logprobs();
  if (in.has_top_logprobs() || out->processed || !out->ids.empty()) {
    out->num_top = static_cast<int32_t>(in.top_logprobs());
  }
  if (in.has_prompt_logprobs()) out->prompt_top = static_cast<int32_t>(in.prompt_logprobs());
  return absl::OkStatus();
}

absl::Status DecodeChatPrompt(const v1::ChatMessages& chat, const ServingModel& model,
                              ParsedRequest* parsed) {
  RETURN_IF_ERROR(NeedTokenizer("chat", model));
  RETURN_IF_ERROR(CheckChat(chat, model.chat_templates));
  parsed->chat = std::make_shared<const v1::ChatMessages>(chat);
  return absl::OkStatus();
}

absl::Status DecodePrompt(const v1::GenerateRequest& request, const ServingModel& model,
                          ParsedRequest* parsed) {
  parsed->add_special_tokens = !request.has_add_special_tokens() || request.add_special_tokens();
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      parsed->kind = ParsedRequest::Prompt::kText;
      parsed->text = request.text();
      return absl::OkStatus();
    case v1::GenerateRequest::kTokenIds: {
      parsed->kind = ParsedRequest::Prompt::kTokenIds;
      const auto& ids = request.token_ids().ids();
      if (ids.empty()) return InvalidField("token_ids.ids", "the prompt is empty");
      return DecodeTokenIds("token_ids.ids", {ids.data(), static_cast<size_t>(ids.size())}, model,
                            &parsed->request->prompt);
    }
    case v1::GenerateRequest::kChat:
      parsed->kind = ParsedRequest::Prompt::kChat;
      if (parsed->request->session_turn.has_value()) {
        parsed->request->session_turn->whole_conversation = true;
      }
      return DecodeChatPrompt(request.chat(), model, parsed);
    case v1::GenerateRequest::PROMPT_NOT_SET: break;
  }
  return InvalidField("prompt", "missing; set one of text, token_ids, chat");
}

absl::Status DecodeSpeculation(const v1::Speculation& speculation, const ServingModel& model,
                               Request* out) {
  out->max_guesses = MostGuesses(model);
  if (!speculation.has_max_guesses()) return absl::OkStatus();
  if (speculation.max_guesses() > static_cast<uint32_t>(MostGuesses(model))) {
    return InvalidField("speculation.max_guesses", "must be between 0 and " +
                                                       std::to_string(MostGuesses(model)) +
                                                       ", this server's --speculate, not " +
                                                       std::to_string(speculation.max_guesses()));
  }
  out->max_guesses = static_cast<int32_t>(speculation.max_guesses());
  return absl::OkStatus();
}

absl::Status DecodeTurn(const v1::GenerateRequest& request, Request* out) {
  out->bypass_cache = request.bypass_prefix_cache();
  if (!request.has_session_id()) {
    if (request.has_expected_position()) {
      return InvalidField("expected_position", "is of a session; set session_id too");
    }
    if (request.create_session()) return InvalidField("create_session", "needs a session_id");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
  if (out->bypass_cache) {
    return InvalidField("bypass_prefix_cache", "a session keeps its KV; set one of the two");
  }
  TurnRequest& turn = out->session_turn.emplace();
  turn.session = request.session_id();
  if (request.has_expected_position()) turn.expected_position = request.expected_position();
  turn.create_session = request.create_session();
  if (request.output().has_prompt_logprobs()) {
    return InvalidField("output.prompt_logprobs",
                        "computes all of the prompt, and a session keeps its KV; set one of the "
                        "two, or use Score");
  }
  return absl::OkStatus();
}

// How long at most is the server's to say (server/detach/detach_call.cc).
absl::Status DecodeDetach(const v1::GenerateRequest& in, ParsedRequest* parsed) {
  const double seconds = in.detach_seconds();
  if (!std::isfinite(seconds) || seconds < 0) {
    return InvalidField("detach_seconds", "must be 0 or more, and finite");
  }
  if (seconds > 0 && parsed->answers.several()) {
    return InvalidField("detach_seconds", "must be 0 with n or best_of above 1");
  }
  parsed->output.detach_seconds = seconds;
  return absl::OkStatus();
}

// Requires the sampling parameters and the session.
absl::Status DecodeAnswers(const v1::GenerateRequest& in, const ServingModel& model,
                           ParsedRequest* parsed) {
  if (in.has_n() && in.n() == 0) return InvalidField("n", "must be at least 1");
  const uint32_t n = in.has_n() ? in.n() : 1;
  const uint32_t best_of = in.has_best_of() ? in.best_of() : n;
  if (best_of < n) {
    return InvalidField("best_of", "must be at least n, which is " + std::to_string(n) + ", not " +
                                       std::to_string(best_of));
  }
  const char* const field = best_of > n ? "best_of" : "n";
  const auto rows = static_cast<uint32_t>(model.setup.config.max_num_seqs);
  if (best_of > std::min(kMaxAnswers, rows)) {
    return InvalidField(
        field, "must be at most " + std::to_string(std::min(kMaxAnswers, rows)) +
                   (rows < kMaxAnswers ? ", the requests that run at once here" : "") + "; not " +
                   std::to_string(best_of));
  }
  parsed->answers = {.n = Narrow(n), .best_of = Narrow(best_of)};
  if (!parsed->answers.several()) return absl::OkStatus();
  if (parsed->request->session_turn.has_value()) {
    return InvalidField(field, "must be 1 with session_id: a session goes on from one answer");
  }
  if (parsed->request->sampling.row.temperature == 0) {
    return InvalidField(field, "must be 1 at temperature 0, where all answers are the same");
  }
  return absl::OkStatus();
}

// The special tokens that the tokenizer puts before and after every text. Only the first text of a
// session gets them.
absl::Status FrameOfText(const Tokenizer& tokenizer, TurnRequest* turn) {
  std::vector<int32_t> bare;
  std::vector<int32_t> framed;
  RETURN_IF_ERROR(tokenizer.Encode("a", false, true, &bare));
  RETURN_IF_ERROR(tokenizer.Encode("a", true, true, &framed));
  const auto at = std::search(framed.begin(), framed.end(), bare.begin(), bare.end());
  if (at == framed.end()) return absl::OkStatus();
  turn->prefix.assign(framed.begin(), at);
  turn->suffix.assign(at + static_cast<std::ptrdiff_t>(bare.size()), framed.end());
  return absl::OkStatus();
}

// The text of the last tokens, in which a marker of reasoning has room.
std::string EndOfPrompt(const ServingModel& model, const ParsedRequest& parsed) {
  constexpr size_t kTokens = 24;
  const std::vector<int32_t>& prompt = parsed.request->prompt;
  const auto begin = prompt.end() - static_cast<std::ptrdiff_t>(std::min(kTokens, prompt.size()));
  return model.tokenizer->Decode({begin, prompt.end()}, /*skip_special=*/false);
}

// Plans how the chat's tools are called; a call that is required is the output's structure.
absl::Status RequireCalls(ParsedRequest* parsed) {
  ASSIGN_OR_RETURN(std::optional<Structure> calls, AddTools(*parsed->chat, &parsed->output.answer));
  if (!calls) return absl::OkStatus();
  if (parsed->structure) {
    return InvalidField("structured_output",
                        "contradicts chat.tool_choice, which makes the answer a call");
  }
  parsed->structure = std::move(calls);
  return CheckBesideStructure(*parsed->structure, parsed->request->sampling);
}

// Turns the text of the output off, for a server without a tokenizer.
absl::Status ForgoText(const ServingModel& model, ParsedRequest* parsed) {
  if (parsed->kind != ParsedRequest::Prompt::kTokenIds) return NeedTokenizer("text", model);
  if (!parsed->request->sampling.stop.empty()) return NeedTokenizer("stop.stop", model);
  if (!parsed->output.token_ids) return NeedTokenizer("output.text", model);
  parsed->output.text = false;
  return absl::OkStatus();
}

}  // namespace

size_t ParsedRequest::TextBytes() const {
  return text.size() + (chat == nullptr ? 0 : chat->ByteSizeLong());
}

absl::Status CheckModelName(const std::string& name, const ServingModel& model) {
  if (name == model.name) return absl::OkStatus();
  const std::vector<std::string>& others = model.other_names;
  if (std::find(others.begin(), others.end(), name) != others.end()) return absl::OkStatus();
  return Refusal(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
                 "model: not served here; this server has '" + model.name + "'");
}

absl::Status CheckPriority(int32_t priority) {
  if (priority >= -kMaxPriority && priority <= kMaxPriority) return absl::OkStatus();
  return InvalidField("priority", "must be between -100 and 100, not " + std::to_string(priority));
}

absl::Status NeedTokenizer(const std::string& field, const ServingModel& model) {
  if (model.tokenizer != nullptr) return absl::OkStatus();
  return Refusal(absl::StatusCode::kFailedPrecondition, "NO_TOKENIZER",
                 field +
                     ": this server has no tokenizer (--skip-tokenizer-init); send and take "
                     "token ids");
}

absl::Status DecodeTokenIds(const std::string& field, std::span<const uint32_t> ids,
                            const ServingModel& model, std::vector<int32_t>* out) {
  const auto vocab = static_cast<uint32_t>(model.setup.model.vocab_size);
  out->reserve(out->size() + ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= vocab) {
      return InvalidField(field, "id " + std::to_string(ids[i]) + " at index " + std::to_string(i) +
                                     " is outside the vocabulary [0, " + std::to_string(vocab) +
                                     ")");
    }
    out->push_back(static_cast<int32_t>(ids[i]));
  }
  return absl::OkStatus();
}

absl::Status CheckReadings(const Request& request, int64_t max_reply_bytes) {
  if (request.reading.prompt_top < 0) return absl::OkStatus();
  constexpr int64_t kHeadBytes = 64 << 10;  // of the message around the scores
  const int64_t each = int64_t{4} * ScoreWords(request.reading.prompt_top, 0) + 16;
  const int64_t most = (max_reply_bytes - kHeadBytes) / each + 1;
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  if (tokens <= most) return absl::OkStatus();
  return InvalidField("output.prompt_logprobs",
                      "scores of a prompt of " + std::to_string(tokens) +
                          " tokens do not fit into one message; of this size at most " +
                          std::to_string(most) + " tokens do: ask for fewer top tokens");
}

int32_t MostGuesses(const ServingModel& model) { return model.setup.config.speculate; }

absl::StatusOr<ParsedRequest> DecodeGenerate(const v1::GenerateRequest& request,
                                             const ServingModel& model, uint64_t seed) {
  ParsedRequest parsed;
  parsed.request = std::make_unique<Request>();
  if (request.has_request_id()) {
    if (request.request_id().empty()) {
      return InvalidField("request_id", "is empty; leave it out to get one");
    }
    RETURN_IF_ERROR(CheckName("request_id", request.request_id()));
    parsed.request_id = request.request_id();
  }
  if (request.has_model()) RETURN_IF_ERROR(CheckModelName(request.model(), model));
  parsed.model = request.model();
  RETURN_IF_ERROR(CheckPriority(request.priority()));
  Request& out = *parsed.request;
  out.priority = request.priority();
  RETURN_IF_ERROR(
      DecodeSampling(request.sampling(), model.setup.model.generation, seed, &out.sampling));
  const auto& names = request.sampling().logit_processors();
  const absl::Status added =
      model.logit_processors.AddTo({names.begin(), names.end()}, &out.sampling);
  if (!added.ok()) {
    return InvalidField("sampling.logit_processors", std::string(added.message()));
  }
  DecodeStop(request.stop(), model.setup.model.eos_token_ids, &out.sampling);
  if (request.stop().has_max_tokens() && request.stop().max_tokens() == 0) {
    return InvalidField("stop.max_tokens", "must be at least 1");
  }
  RETURN_IF_ERROR(DecodeOutput(request.output(), &parsed));
  RETURN_IF_ERROR(DecodeReading(request.output(), model.setup.model.vocab_size, &out.reading));
  RETURN_IF_ERROR(DecodeSpeculation(request.speculation(), model, &out));
  RETURN_IF_ERROR(DecodeTurn(request, &out));
  RETURN_IF_ERROR(DecodeAnswers(request, model, &parsed));
  RETURN_IF_ERROR(DecodeDetach(request, &parsed));
  // Ranges are checked before the prompt costs anything; how much of a default max_tokens the
  // context has room for is not known yet.
  const bool open_end = out.sampling.max_tokens == 0;
  if (open_end) out.sampling.max_tokens = std::numeric_limits<int32_t>::max();
  RETURN_IF_ERROR(WithFieldPath(out.sampling.Validate(model.setup.model.vocab_size)));
  if (open_end) {
    out.max_tokens_source = MaxTokensSource::kDefault;
    const std::optional<int32_t> wanted = model.setup.model.generation.max_new_tokens;
    if (wanted.has_value()) out.sampling.max_tokens = std::max(*wanted, 1);
  }
  if (request.has_structured_output()) {
    ASSIGN_OR_RETURN(parsed.structure, DecodeStructure(request.structured_output()));
  }
  RETURN_IF_ERROR(DecodePrompt(request, model, &parsed));
  ASSIGN_OR_RETURN(parsed.output.answer, DecodeAnswer(request, model));
  if (parsed.output.answer.reads()) RETURN_IF_ERROR(NeedTokenizer("reasoning", model));
  return parsed;
}

absl::Status TokenizePrompt(const ServingModel& model, ParsedRequest* parsed) {
  if (model.tokenizer == nullptr) RETURN_IF_ERROR(ForgoText(model, parsed));
  AnswerPlan& answer = parsed->output.answer;
  if (parsed->kind == ParsedRequest::Prompt::kTokenIds) {
    if (answer.reasoning != nullptr) AddPromptEnd(EndOfPrompt(model, *parsed), &answer);
    return absl::OkStatus();
  }
  const bool chat = parsed->kind == ParsedRequest::Prompt::kChat;
  if (chat) {
    ASSIGN_OR_RETURN(const DecodedChat decoded, DecodeChat(*parsed->chat, model.chat_templates));
    ASSIGN_OR_RETURN(parsed->text, RenderChat(decoded));
    RETURN_IF_ERROR(RequireCalls(parsed));
    parsed->chat = nullptr;
  }
  AddPromptEnd(parsed->text, &answer);
  // The scheduler frames a turn's text if it is its session's first.
  Request& request = *parsed->request;
  const bool framed = !chat && parsed->add_special_tokens;
  const bool turn = request.session_turn.has_value() && !request.session_turn->whole_conversation;
  if (framed && turn) RETURN_IF_ERROR(FrameOfText(*model.tokenizer, &*request.session_turn));
  const absl::Status status = model.tokenizer->Encode(parsed->text, framed && !turn,
                                                      /*parse_special=*/true, &request.prompt);
  const char* const field = chat ? "chat" : "text";
  RETURN_IF_ERROR(TextRefusal(field, status));
  if (request.prompt.empty() && (chat || !turn)) {
    return InvalidField(field, "the prompt is empty: it yields no token");
  }
  // The text is not needed again, and a waiting request should not hold it.
  parsed->text = std::string();
  return absl::OkStatus();
}

}  // namespace quire

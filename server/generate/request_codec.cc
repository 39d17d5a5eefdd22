// The request's door: what a client may say, checked once and in one place.
#include "server/generate/request_codec.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

constexpr int kMaxMessages = 4096;
constexpr int32_t kMaxPriority = 100;

// A proto uint32 as the engine's int32; what does not fit becomes a value no range contains.
int32_t Narrow(uint32_t value) {
  return value > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())
             ? std::numeric_limits<int32_t>::max()
             : static_cast<int32_t>(value);
}

void DecodeSampling(const v1::SamplingParams& in, const GenerationDefaults& defaults, uint64_t seed,
                    SamplingParams* out) {
  SampleRow& row = out->row;
  row.temperature = in.has_temperature()  ? in.temperature()
                    : !defaults.do_sample ? 0.0f
                                          : defaults.temperature.value_or(1.0f);
  row.top_k = in.has_top_k() ? Narrow(in.top_k()) : defaults.top_k.value_or(0);
  row.top_p = in.has_top_p() ? in.top_p() : defaults.top_p.value_or(1.0f);
  row.min_p = in.has_min_p() ? in.min_p() : defaults.min_p.value_or(0.0f);
  row.repetition_penalty = in.has_repetition_penalty() ? in.repetition_penalty()
                                                       : defaults.repetition_penalty.value_or(1.0f);
  row.presence_penalty = in.presence_penalty();
  row.frequency_penalty = in.frequency_penalty();
  row.seed = in.has_seed() ? in.seed() : seed;
  out->logit_bias.reserve(in.logit_bias().size());
  for (const auto& [token, bias] : in.logit_bias()) {
    out->logit_bias.push_back({Narrow(token), bias});
  }
  std::sort(out->logit_bias.begin(), out->logit_bias.end(),
            [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
}

void DecodeStop(const v1::StopConditions& in, const std::vector<int32_t>& eos,
                SamplingParams* out) {
  out->max_tokens = Narrow(in.max_tokens());
  out->min_tokens = Narrow(in.min_tokens());
  out->stop.assign(in.stop().begin(), in.stop().end());
  for (const uint32_t id : in.stop_token_ids()) out->stop_token_ids.push_back(Narrow(id));
  out->include_stop_in_output = in.include_stop_in_output();
  out->ignore_eos = in.ignore_eos();
  if (!out->ignore_eos) out->eos_token_ids = eos;
}

// Validate's message begins with a field's own name; the client's message has it one level down.
absl::Status WithFieldPath(const absl::Status& status) {
  if (status.ok()) return status;
  const std::string message(status.message().data(), status.message().size());
  const size_t space = message.find(' ');
  const std::string field = message.substr(0, space);
  static constexpr const char* kStopFields[] = {"max_tokens", "min_tokens", "stop",
                                                "stop_token_ids"};
  const bool of_stop =
      std::find(std::begin(kStopFields), std::end(kStopFields), field) != std::end(kStopFields);
  return InvalidField((of_stop ? "stop." : "sampling.") + field,
                      space == std::string::npos ? message : message.substr(space + 1));
}

absl::Status DecodeOutput(const v1::OutputOptions& in, GenerationAsk* ask) {
  ask->send_text = !in.has_text() || in.text();
  ask->send_token_ids = !in.has_token_ids() || in.token_ids();
  ask->skip_special_tokens = !in.has_skip_special_tokens() || in.skip_special_tokens();
  ask->sampling.logprobs = in.logprobs();
  if (!ask->send_text && !ask->send_token_ids) {
    return InvalidField("output", "text and token_ids are both off; ask for at least one");
  }
  return absl::OkStatus();
}

absl::Status DecodePrompt(const v1::GenerateRequest& request, const ServingModel& model,
                          GenerationAsk* ask) {
  ask->add_special_tokens = !request.has_add_special_tokens() || request.add_special_tokens();
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      ask->kind = GenerationAsk::Prompt::kText;
      ask->text = request.text();
      return absl::OkStatus();
    case v1::GenerateRequest::kTokenIds: {
      ask->kind = GenerationAsk::Prompt::kTokenIds;
      const auto& ids = request.token_ids().ids();
      if (ids.empty()) return InvalidField("token_ids.ids", "the prompt is empty");
      return DecodeTokenIds("token_ids.ids", {ids.data(), static_cast<size_t>(ids.size())}, model,
                            &ask->prompt);
    }
    case v1::GenerateRequest::kChat:
      ask->kind = GenerationAsk::Prompt::kChat;
      ask->add_generation_prompt =
          !request.chat().has_add_generation_prompt() || request.chat().add_generation_prompt();
      return DecodeChat(request.chat(), model, &ask->messages);
    case v1::GenerateRequest::PROMPT_NOT_SET: break;
  }
  return InvalidField("prompt", "missing; set one of text, token_ids, chat");
}

absl::Status DecodeTurn(const v1::GenerateRequest& request, GenerationAsk* ask) {
  ask->bypass_cache = request.bypass_prefix_cache();
  if (!request.has_session_id()) {
    if (request.has_expected_position()) {
      return InvalidField("expected_position", "is of a session; set session_id too");
    }
    if (request.create_session()) return InvalidField("create_session", "needs a session_id");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckName("session_id", request.session_id()));
  if (ask->bypass_cache) {
    return InvalidField("bypass_prefix_cache", "a session keeps its KV; set one of the two");
  }
  ask->session_id = request.session_id();
  if (request.has_expected_position()) {
    ask->expected_position = request.expected_position();
  }
  ask->create_session = request.create_session();
  return absl::OkStatus();
}

// Tokens of prompt and output that one request may have here: the context, or the pool if smaller.
int64_t ContextLimit(const ServingModel& model) {
  return std::min<int64_t>(model.setup.limits.max_model_len, model.setup.memory.kv_tokens());
}

// Which of the two bounds ContextLimit, in words.
std::string LimitText(const ServingModel& model) {
  const int64_t context = model.setup.limits.max_model_len;
  const int64_t pool = model.setup.memory.kv_tokens();
  return pool < context ? "the KV cache of " + std::to_string(pool) + " tokens"
                        : "the context of " + std::to_string(context) + " tokens";
}

absl::Status ApplyLimits(const ServingModel& model, GenerationAsk* ask) {
  const int64_t prompt = static_cast<int64_t>(ask->prompt.size());
  const int64_t room = ContextLimit(model) - prompt;
  if (room < 1) {
    return InvalidField("prompt",
                        "has " + std::to_string(prompt) + " tokens; " + LimitText(model) +
                            " leaves no room for output; " +
                            (ask->session_id.empty() ? "shorten the prompt"
                                                     : "truncate the session, or start another"));
  }
  SamplingParams& sampling = ask->sampling;
  if (sampling.max_tokens > room) {
    return InvalidField("stop.max_tokens", std::to_string(sampling.max_tokens) +
                                               " and the prompt's " + std::to_string(prompt) +
                                               " tokens exceed " + LimitText(model) +
                                               "; ask for at most " + std::to_string(room));
  }
  if (sampling.max_tokens == 0) {
    const int64_t wanted =
        model.setup.model.generation.max_new_tokens.value_or(std::numeric_limits<int32_t>::max());
    sampling.max_tokens = static_cast<int32_t>(std::clamp<int64_t>(wanted, 1, room));
    ask->until_context = wanted > room;
  }
  return WithFieldPath(sampling.Validate(model.setup.model.vocab_size));
}

// The ids that the post-processor puts before and behind every text.
absl::Status FrameOfText(const Tokenizer& tokenizer, GenerationAsk* ask) {
  std::vector<int32_t> bare;
  std::vector<int32_t> framed;
  RETURN_IF_ERROR(tokenizer.Encode("a", false, true, &bare));
  RETURN_IF_ERROR(tokenizer.Encode("a", true, true, &framed));
  const auto at = std::search(framed.begin(), framed.end(), bare.begin(), bare.end());
  if (at == framed.end()) return absl::OkStatus();
  ask->text_head.assign(framed.begin(), at);
  ask->text_foot.assign(at + static_cast<std::ptrdiff_t>(bare.size()), framed.end());
  return absl::OkStatus();
}

absl::Status EmptyPrompt(const GenerationAsk& ask) {
  return InvalidField(ask.kind == GenerationAsk::Prompt::kChat ? "chat" : "text",
                      "the prompt is empty: it yields no token");
}

void EncodeSampling(const SamplingParams& in, v1::SamplingParams* out) {
  out->set_temperature(in.row.temperature);
  out->set_top_k(static_cast<uint32_t>(in.row.top_k));
  out->set_top_p(in.row.top_p);
  out->set_min_p(in.row.min_p);
  out->set_repetition_penalty(in.row.repetition_penalty);
  out->set_presence_penalty(in.row.presence_penalty);
  out->set_frequency_penalty(in.row.frequency_penalty);
  out->set_seed(in.row.seed);
  for (const LogitBias& entry : in.logit_bias) {
    (*out->mutable_logit_bias())[static_cast<uint32_t>(entry.token)] = entry.bias;
  }
}

void EncodeStop(const SamplingParams& in, v1::StopConditions* out) {
  out->set_max_tokens(static_cast<uint32_t>(in.max_tokens));
  out->set_min_tokens(static_cast<uint32_t>(in.min_tokens));
  for (const std::string& text : in.stop) out->add_stop(text);
  for (const int32_t id : in.stop_token_ids) out->add_stop_token_ids(static_cast<uint32_t>(id));
  out->set_include_stop_in_output(in.include_stop_in_output);
  out->set_ignore_eos(in.ignore_eos);
}

v1::Residency::Outcome WireOutcome(Residency::Outcome outcome) {
  switch (outcome) {
    case Residency::Outcome::kNone: return v1::Residency::OUTCOME_NONE;
    case Residency::Outcome::kDevice: return v1::Residency::OUTCOME_DEVICE;
    case Residency::Outcome::kRestored: return v1::Residency::OUTCOME_RESTORED;
    case Residency::Outcome::kPartial: return v1::Residency::OUTCOME_PARTIAL;
    case Residency::Outcome::kRecomputed: return v1::Residency::OUTCOME_RECOMPUTED;
  }
  return v1::Residency::OUTCOME_UNSPECIFIED;
}

void EncodeResidency(const Residency& in, v1::Residency* out) {
  out->set_outcome(WireOutcome(in.outcome));
  out->set_device_tokens(static_cast<uint32_t>(in.device_tokens));
  out->set_host_tokens(static_cast<uint32_t>(in.host_tokens));
  out->set_recomputed_tokens(static_cast<uint32_t>(in.recomputed_tokens));
  out->set_restore_seconds(static_cast<double>(in.restore_ns) * 1e-9);
}

v1::FinishReason WireReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos: return v1::FINISH_REASON_EOS;
    case FinishReason::kStopToken: return v1::FINISH_REASON_STOP_TOKEN;
    case FinishReason::kStopText: return v1::FINISH_REASON_STOP_TEXT;
    case FinishReason::kMaxTokens: return v1::FINISH_REASON_MAX_TOKENS;
    case FinishReason::kContextLimit: return v1::FINISH_REASON_CONTEXT_LIMIT;
    default: return v1::FINISH_REASON_UNSPECIFIED;
  }
}

// Seconds between two instants, 0 when either never came.
double Seconds(int64_t from_ns, int64_t to_ns) {
  return from_ns == 0 || to_ns <= from_ns ? 0.0 : static_cast<double>(to_ns - from_ns) * 1e-9;
}

}  // namespace

size_t GenerationAsk::TextBytes() const {
  size_t bytes = text.size();
  for (const ChatMessage& message : messages) bytes += message.role.size() + message.content.size();
  return bytes;
}

absl::Status CheckModelName(const std::string& name, const ServingModel& model) {
  if (name == model.name) return absl::OkStatus();
  const std::vector<std::string>& others = model.other_names;
  if (std::find(others.begin(), others.end(), name) != others.end()) return absl::OkStatus();
  return Refusal(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
                 "model: not served here; this server has '" + model.name + "'");
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

absl::Status DecodeChat(const v1::ChatMessages& chat, const ServingModel& model,
                        std::vector<ChatMessage>* messages) {
  if (model.chat_template == nullptr) {
    return Refusal(absl::StatusCode::kFailedPrecondition, "NO_CHAT_TEMPLATE",
                   "chat: the model has no chat template; send text or token_ids");
  }
  if (chat.messages_size() < 1 || chat.messages_size() > kMaxMessages) {
    return InvalidField("chat.messages", "must have 1 to 4096 messages, not " +
                                             std::to_string(chat.messages_size()));
  }
  messages->reserve(static_cast<size_t>(chat.messages_size()));
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::ChatMessage& message = chat.messages(i);
    if (message.role().empty()) {
      return InvalidField("chat.messages[" + std::to_string(i) + "].role",
                          "missing; say \"user\", \"assistant\" or \"system\"");
    }
    messages->push_back({message.role(), message.content()});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RenderChat(const std::vector<ChatMessage>& messages,
                                       bool add_generation_prompt, const ServingModel& model) {
  absl::StatusOr<std::string> text = model.chat_template->Render(messages, add_generation_prompt);
  if (text.ok()) return text;
  return InvalidField("chat",
                      std::string(text.status().message().data(), text.status().message().size()));
}

absl::StatusOr<GenerationAsk> DecodeGenerate(const v1::GenerateRequest& request,
                                             const ServingModel& model, uint64_t seed) {
  GenerationAsk ask;
  if (request.has_request_id()) {
    if (request.request_id().empty()) {
      return InvalidField("request_id", "is empty; leave it out to get one");
    }
    RETURN_IF_ERROR(CheckName("request_id", request.request_id()));
    ask.request_id = request.request_id();
  }
  if (request.has_model()) RETURN_IF_ERROR(CheckModelName(request.model(), model));
  if (request.priority() < -kMaxPriority || request.priority() > kMaxPriority) {
    return InvalidField("priority",
                        "must be between -100 and 100, not " + std::to_string(request.priority()));
  }
  ask.priority = request.priority();
  DecodeSampling(request.sampling(), model.setup.model.generation, seed, &ask.sampling);
  DecodeStop(request.stop(), model.setup.model.eos_token_ids, &ask.sampling);
  if (request.stop().has_max_tokens() && request.stop().max_tokens() == 0) {
    return InvalidField("stop.max_tokens", "must be at least 1");
  }
  RETURN_IF_ERROR(DecodeOutput(request.output(), &ask));
  RETURN_IF_ERROR(DecodeTurn(request, &ask));
  // Ranges are checked before the prompt costs anything; an absent max_tokens is not known yet.
  SamplingParams& sampling = ask.sampling;
  const bool open_end = sampling.max_tokens == 0;
  if (open_end) sampling.max_tokens = std::numeric_limits<int32_t>::max();
  RETURN_IF_ERROR(WithFieldPath(sampling.Validate(model.setup.model.vocab_size)));
  if (open_end) sampling.max_tokens = 0;
  RETURN_IF_ERROR(DecodePrompt(request, model, &ask));
  return ask;
}

absl::Status TokenizePrompt(const ServingModel& model, GenerationAsk* ask) {
  if (ask->kind == GenerationAsk::Prompt::kTokenIds) return absl::OkStatus();
  const bool chat = ask->kind == GenerationAsk::Prompt::kChat;
  if (chat) {
    ASSIGN_OR_RETURN(ask->text, RenderChat(ask->messages, ask->add_generation_prompt, model));
  }
  // Whether a turn's text is its session's first is not known yet.
  const bool framed = !chat && ask->add_special_tokens;
  const bool turn = !ask->session_id.empty();
  if (framed && turn) RETURN_IF_ERROR(FrameOfText(*model.tokenizer, ask));
  const absl::Status status = model.tokenizer->Encode(ask->text, framed && !turn,
                                                      /*parse_special=*/true, &ask->prompt);
  if (!status.ok()) {
    return InvalidField(chat ? "chat" : "text",
                        std::string(status.message().data(), status.message().size()));
  }
  if (ask->prompt.empty() && !turn) return EmptyPrompt(*ask);
  // The text is not needed again, and a waiting request should not hold it.
  ask->text = std::string();
  ask->messages = {};
  return absl::OkStatus();
}

absl::Status FitPrompt(const ServingModel& model, std::vector<int32_t> session_tokens,
                       GenerationAsk* ask) {
  std::vector<int32_t>& prompt = ask->prompt;
  if (ask->kind == GenerationAsk::Prompt::kText && session_tokens.empty()) {
    prompt.insert(prompt.begin(), ask->text_head.begin(), ask->text_head.end());
    prompt.insert(prompt.end(), ask->text_foot.begin(), ask->text_foot.end());
  }
  if (prompt.empty()) return EmptyPrompt(*ask);
  if (ask->kind != GenerationAsk::Prompt::kChat && !session_tokens.empty()) {
    session_tokens.insert(session_tokens.end(), prompt.begin(), prompt.end());
    prompt = std::move(session_tokens);
  }
  return ApplyLimits(model, ask);
}

void EncodeAccepted(const GenerationAsk& ask, const std::string& model_name, int64_t queue_position,
                    v1::Accepted* accepted) {
  accepted->set_model(model_name);
  accepted->set_prompt_tokens(static_cast<uint32_t>(ask.prompt.size()));
  EncodeSampling(ask.sampling, accepted->mutable_sampling());
  EncodeStop(ask.sampling, accepted->mutable_stop());
  v1::OutputOptions* output = accepted->mutable_output();
  output->set_text(ask.send_text);
  output->set_token_ids(ask.send_token_ids);
  output->set_logprobs(ask.sampling.logprobs);
  output->set_skip_special_tokens(ask.skip_special_tokens);
  accepted->set_queue_position(static_cast<uint32_t>(std::max<int64_t>(queue_position, 0)));
}

void EncodeFinished(const FinishEvent& event, const std::string& stop_text,
                    v1::Finished* finished) {
  finished->set_reason(WireReason(event.reason));
  if (event.reason == FinishReason::kEos || event.reason == FinishReason::kStopToken) {
    finished->set_stop_token_id(static_cast<uint32_t>(event.stop_token));
  }
  if (event.reason == FinishReason::kStopText) finished->set_stop_text(stop_text);
  v1::Usage* usage = finished->mutable_usage();
  usage->set_prompt_tokens(static_cast<uint32_t>(event.usage.prompt_tokens));
  usage->set_completion_tokens(static_cast<uint32_t>(event.usage.completion_tokens));
  usage->set_cached_tokens(static_cast<uint32_t>(event.usage.cached_tokens));
  usage->set_preemptions(static_cast<uint32_t>(event.usage.preemptions));
  const RequestTimings& at = event.timings;
  v1::Timings* timings = finished->mutable_timings();
  timings->set_queue_seconds(Seconds(at.arrival_ns, at.admitted_ns));
  timings->set_prefill_seconds(Seconds(at.admitted_ns, at.first_token_ns));
  timings->set_first_token_seconds(Seconds(at.arrival_ns, at.first_token_ns));
  // The two ends are taken on different threads; one token takes no time to decode.
  if (event.usage.completion_tokens > 1) {
    timings->set_decode_seconds(Seconds(at.first_token_ns, at.last_token_ns));
  }
  timings->set_total_seconds(Seconds(at.arrival_ns, at.finished_ns));
  EncodeResidency(event.residency, finished->mutable_residency());
  if (event.position > 0) finished->set_position(static_cast<uint32_t>(event.position));
}

}  // namespace quire

// A request becomes a quire.v1 request, so that both protocols have the same ranges; a frame
// becomes a GenerateResponse.
#include "server/wire/vllm/vllm_format.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status_macros.h"
#include "field/vllm_inference.pb.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"
#include "server/structured/structured_codec.h"
#include "server/wire/field_names.h"
#include "server/wire/unknown_fields.h"

namespace quire {
namespace {

constexpr uint32_t kDefaultNewTokens = 20;
// All of a reply but ids, log probabilities and text: a stop string and some numbers.
constexpr int64_t kReplyHeadBytes = 4096;

constexpr FieldName kFieldNames[] = {
    {"sampling.temperature", "temperature"},
    {"sampling.repetition_penalty", "decoding.repetition_penalty"},
    {"sampling.presence_penalty", "decoding.presence_penalty"},
    {"sampling.frequency_penalty", "decoding.frequency_penalty"},
    {"sampling.logit_bias", "decoding.logit_bias"},
    {"sampling.allowed_token_ids", "decoding.allowed_token_ids"},
    {"structured_output.json_schema", "decoding.json"},
    {"structured_output.json_object", "decoding.json_object"},
    {"structured_output.regex", "decoding.regex"},
    {"structured_output.grammar", "decoding.grammar"},
    {"structured_output.lark", "decoding.grammar"},
    {"structured_output.choice.texts", "decoding.choice.choices"},
    {"stop.max_tokens", "stopping.max_new_tokens"},
    {"stop.min_tokens", "stopping.min_new_tokens"},
    {"stop.stop", "stopping.stop_strings"},
    {"stop.stop_token_ids", "stopping.stop_token_ids"},
    {"bypass_prefix_cache", "kv.bypass_prefix_cache"},
};

// Refuses a choice of candidates that asks for any token but the sampled one.
absl::Status CheckCandidates(const std::string& field, const vllm::CandidateTokens& candidates) {
  const bool none =
      candidates.top_n() == 0 && candidates.token_ids().ids().empty() && !candidates.all();
  if (none) return absl::OkStatus();
  return NotServed(field, "log probabilities are those of the sampled tokens alone");
}

void TranslateStructure(const vllm::DecodingParameters& in, v1::GenerateRequest* out) {
  using vllm::DecodingParameters;
  switch (in.structured_output_case()) {
    case DecodingParameters::kJson:
      return out->mutable_structured_output()->set_json_schema(in.json());
    case DecodingParameters::kRegex: return out->mutable_structured_output()->set_regex(in.regex());
    case DecodingParameters::kGrammar:
      if (GrammarKindOf(in.grammar()) == GrammarKind::kLark) {
        return out->mutable_structured_output()->set_lark(in.grammar());
      }
      return out->mutable_structured_output()->set_grammar(in.grammar());
    case DecodingParameters::kChoice:
      *out->mutable_structured_output()->mutable_choice()->mutable_texts() = in.choice().choices();
      return;
    case DecodingParameters::kJsonObject:
      if (in.json_object()) out->mutable_structured_output()->set_json_object(true);
      return;
    case DecodingParameters::kStructuralTag:
    case DecodingParameters::STRUCTURED_OUTPUT_NOT_SET: return;
  }
}

absl::Status CheckResponse(const vllm::GenerateRequest& request) {
  const vllm::ResponseOptions& response = request.response();
  if (response.prompt_logprobs()) {
    return NotServed("response.prompt_logprobs", "log probabilities are those of the output alone");
  }
  if (response.prompt_token_ids() && !request.has_token_ids()) {
    return NotServed(
        "response.prompt_token_ids",
        "a prompt of text is not sent back as ids; quire.v1.Inference/Tokenize does it");
  }
  RETURN_IF_ERROR(CheckCandidates("response.prompt_candidates", response.prompt_candidates()));
  return CheckCandidates("response.output_candidates", response.output_candidates());
}

// Fields that are set and have no counterpart here.
absl::Status CheckServed(const vllm::GenerateRequest& request) {
  if (request.truncate_prompt_tokens() != 0) {
    return NotServed("truncate_prompt_tokens", "prompts are not truncated");
  }
  if (!request.media().empty()) return NotServed("media", "the model takes text alone");
  if (!request.lora_name().empty()) return NotServed("lora_name", "LoRA adapters are not served");
  if (request.sampling().num_sequences() > 1) {
    return NotServed("sampling.num_sequences", "a request has one answer; send it several times");
  }
  const vllm::KVCacheParameters& kv = request.kv();
  if (!kv.cache_salt().empty()) {
    return NotServed("kv.cache_salt", "prefixes are kept apart by tenant, not by salt");
  }
  if (kv.has_kv_transfer_params()) {
    return NotServed("kv.kv_transfer_params", "KV is not passed between servers");
  }
  if (kv.has_ec_transfer_params()) {
    return NotServed("kv.ec_transfer_params", "there is no encoder cache");
  }
  if (request.decoding().has_structural_tag()) {
    return NotServed("decoding.structural_tag", "outputs follow no tags");
  }
  RETURN_IF_ERROR(CheckResponse(request));
  if (request.has_text() || request.has_token_ids()) return absl::OkStatus();
  return InvalidField("prompt", "missing; set text or token_ids");
}

// A number that is 0 counts as not set in this protocol.
void TranslateSampling(const vllm::GenerateRequest& in, const GenerationDefaults& defaults,
                       v1::SamplingParams* out) {
  if (in.has_temperature()) {
    out->set_temperature(in.temperature());
  } else if (!defaults.temperature.has_value()) {
    out->set_temperature(0);
  }
  const vllm::RandomSampling& sampling = in.sampling();
  if (sampling.top_k() != 0) out->set_top_k(sampling.top_k());
  if (sampling.top_p() != 0) out->set_top_p(sampling.top_p());
  if (sampling.min_p() != 0) out->set_min_p(sampling.min_p());
  if (sampling.has_seed()) out->set_seed(static_cast<uint64_t>(sampling.seed()));
  const vllm::DecodingParameters& decoding = in.decoding();
  out->set_presence_penalty(decoding.presence_penalty());
  out->set_frequency_penalty(decoding.frequency_penalty());
  if (decoding.repetition_penalty() != 0) {
    out->set_repetition_penalty(decoding.repetition_penalty());
  }
  *out->mutable_logit_bias() = decoding.logit_bias();
  *out->mutable_allowed_token_ids() = decoding.allowed_token_ids();
}

void TranslateStopping(const vllm::StoppingCriteria& in, v1::StopConditions* out) {
  out->set_max_tokens(in.max_new_tokens() != 0 ? in.max_new_tokens() : kDefaultNewTokens);
  out->set_min_tokens(in.min_new_tokens());
  *out->mutable_stop() = in.stop_strings();
  *out->mutable_stop_token_ids() = in.stop_token_ids();
  out->set_include_stop_in_output(in.include_stop_strings());
  out->set_ignore_eos(in.ignore_eos());
}

v1::GenerateRequest Translate(const vllm::GenerateRequest& in, const GenerationDefaults& defaults) {
  v1::GenerateRequest out;
  if (!in.request_id().empty()) out.set_request_id(in.request_id());
  if (!in.model().empty()) out.set_model(in.model());
  if (in.has_text()) out.set_text(in.text());
  if (in.has_token_ids()) *out.mutable_token_ids()->mutable_ids() = in.token_ids().ids();
  TranslateSampling(in, defaults, out.mutable_sampling());
  TranslateStopping(in.stopping(), out.mutable_stop());
  const vllm::ResponseOptions& response = in.response();
  v1::OutputOptions* output = out.mutable_output();
  const bool text = !response.has_output_text() || response.output_text();
  output->set_text(text);
  // With neither, the counts of tokens are the answer.
  output->set_token_ids(response.output_token_ids() || !text);
  output->set_logprobs(response.output_logprobs());
  output->set_skip_special_tokens(!response.has_skip_special_tokens() ||
                                  response.skip_special_tokens());
  out.set_bypass_prefix_cache(in.kv().bypass_prefix_cache());
  TranslateStructure(in.decoding(), &out);
  if (!in.session_id().empty()) {
    out.set_session_id(in.session_id());
    out.set_create_session(true);
  }
  return out;
}

// As DecodeGenerate; refusals name quire.v1's fields until WireFormat::Named translates them.
absl::StatusOr<ParsedRequest> Translated(const vllm::GenerateRequest& request,
                                         const ServingModel& model, uint64_t seed) {
  RETURN_IF_ERROR(CheckServed(request));
  if (request.priority() < -kMaxPriority || request.priority() > kMaxPriority) {
    return InvalidField("priority",
                        "must be between -100 and 100, not " + std::to_string(request.priority()));
  }
  const v1::GenerateRequest translated = Translate(request, model.setup.model.generation);
  ASSIGN_OR_RETURN(ParsedRequest parsed, DecodeGenerate(translated, model, seed));
  Request& out = *parsed.request;
  out.priority = -request.priority();  // lower numbers run first in this protocol
  if (request.stopping().max_new_tokens() == 0) out.max_tokens_source = MaxTokensSource::kDefault;
  if (out.session_turn.has_value()) out.session_turn->whole_conversation = true;
  return parsed;
}

class Format : public WireFormat {
 public:
  absl::StatusOr<ParsedRequest> Decode(const grpc::ServerContextBase&,
                                       const grpc::ByteBuffer& bytes, const ServingModel& model,
                                       uint64_t seed) override {
    vllm::GenerateRequest request;
    RETURN_IF_ERROR(ParseKnownFields(bytes, &request));
    ASSIGN_OR_RETURN(ParsedRequest parsed, Translated(request, model, seed));
    token_ids_ = request.response().output_token_ids();
    if (request.response().prompt_token_ids()) prompt_ids_ = parsed.request->prompt;
    return parsed;
  }

  absl::Status Named(const absl::Status& status) const override {
    return WithFieldNames(status, kFieldNames);
  }

 protected:
  // Of the prompt's ids in a reply: varints of ids below 2^28.
  int64_t PromptBytes() const { return 4 * static_cast<int64_t>(prompt_ids_.size()); }

  void FillPrompt(const AcceptedFrame& accepted, vllm::PromptInfo* out) {
    out->set_num_prompt_tokens(static_cast<uint32_t>(accepted.prompt_tokens));
    out->mutable_token_ids()->Add(prompt_ids_.begin(), prompt_ids_.end());
  }

  void FillTokens(const OutputDelta& delta, const OutputOptions& output,
                  vllm::SequenceOutput* out) const {
    if (output.text) out->set_text(delta.text);
    out->set_num_tokens(delta.tokens);
    if (token_ids_) out->mutable_token_ids()->Add(delta.token_ids.begin(), delta.token_ids.end());
    out->mutable_logprobs()->Add(delta.logprobs.begin(), delta.logprobs.end());
  }

  static void FillFinish(const EndFrame& end, vllm::FinishInfo* out) {
    using vllm::FinishInfo;
    out->set_num_output_tokens(static_cast<uint32_t>(end.finish.usage.completion_tokens));
    const auto stop_token = static_cast<uint32_t>(end.finish.stop_token);
    switch (end.finish.reason) {
      case FinishReason::kEos: out->set_eos_token_id(stop_token); break;
      case FinishReason::kStopToken: out->set_stop_token_id(stop_token); break;
      case FinishReason::kStopText: out->set_stop_string(end.stop_text); break;
      case FinishReason::kLoop: break;
      default: out->set_finish_reason(FinishInfo::LENGTH); return;
    }
    out->set_finish_reason(FinishInfo::STOP);
  }

 private:
  bool token_ids_ = false;
  std::vector<int32_t> prompt_ids_;  // to be sent back; usually none
};

class StreamFormat final : public Format {
 public:
  std::optional<std::string> Accepted(const AcceptedFrame& accepted) override {
    vllm::GenerateResponse response;
    FillPrompt(accepted, response.mutable_prompt_info());
    return response.SerializeAsString();
  }

  std::optional<std::string> Tokens(const OutputDelta& delta,
                                    const OutputOptions& output) override {
    static thread_local vllm::GenerateResponse response;  // its memory is reused
    response.Clear();
    FillTokens(delta, output, response.mutable_outputs());
    delivered_ = delta.cumulative;
    return response.SerializeAsString();
  }

  std::optional<std::string> End(const EndFrame& end) override {
    vllm::GenerateResponse response;
    FillFinish(end, response.mutable_outputs()->mutable_finish_info());
    return response.SerializeAsString();
  }

  // An abort is an end like others in this protocol.
  std::optional<std::string> Failure(const absl::Status& status, bool accepted) override {
    if (!accepted || !absl::IsCancelled(status)) return std::nullopt;
    vllm::GenerateResponse response;
    vllm::FinishInfo* finish = response.mutable_outputs()->mutable_finish_info();
    finish->set_num_output_tokens(delivered_);
    finish->set_finish_reason(vllm::FinishInfo::ABORTED);
    return response.SerializeAsString();
  }

  absl::Status CheckSize(int64_t, int64_t) const override { return absl::OkStatus(); }

 private:
  uint32_t delivered_ = 0;
};

class UnaryFormat final : public Format {
 public:
  bool one_reply() const override { return true; }
  std::optional<std::string> Accepted(const AcceptedFrame&) override { return std::nullopt; }
  std::optional<std::string> Tokens(const OutputDelta&, const OutputOptions&) override {
    return std::nullopt;
  }

  std::optional<std::string> End(const EndFrame& end) override {
    vllm::GenerateResponse response;
    FillPrompt(end.accepted, response.mutable_prompt_info());
    FillTokens(end.rest, end.accepted.output, response.mutable_outputs());
    FillFinish(end, response.mutable_outputs()->mutable_finish_info());
    return response.SerializeAsString();
  }

  absl::Status CheckSize(int64_t bytes, int64_t max_reply_bytes) const override {
    if (bytes + PromptBytes() + kReplyHeadBytes <= max_reply_bytes) return absl::OkStatus();
    return ReplyTooLarge(max_reply_bytes, "use GenerateStream, or lower stopping.max_new_tokens");
  }
};

}  // namespace

std::unique_ptr<WireFormat> VllmStreamFormat(const ServingModel&) {
  return std::make_unique<StreamFormat>();
}

std::unique_ptr<WireFormat> VllmUnaryFormat(const ServingModel&) {
  return std::make_unique<UnaryFormat>();
}

}  // namespace quire

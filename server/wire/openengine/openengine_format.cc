// A request becomes a quire.v1 request, so that both protocols have the same ranges; a frame
// becomes an event. A request that fails after its acceptance ends with an EngineError event and
// the call with OK, as this protocol wants it.
#include "server/wire/openengine/openengine_format.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "engine/base/status_macros.h"
#include "field/openengine.pb.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"
#include "server/wire/field_names.h"
#include "server/wire/openengine/token_encoder.h"
#include "server/wire/unknown_fields.h"

namespace quire {
namespace {

namespace oe = openengine::v1;

constexpr char kPrefix[] = "openengine-";  // of metadata that the protocol reserves

constexpr FieldName kFieldNames[] = {
    {"stop.max_tokens", "stopping.max_tokens"},
    {"stop.min_tokens", "stopping.min_tokens"},
    {"stop.stop", "stopping.conditions"},
    {"stop.stop_token_ids", "stopping.conditions"},
    {"bypass_prefix_cache", "kv.bypass_prefix_cache"},
    {"structured_output.json_schema", "guided.json_schema"},
    {"structured_output.regex", "guided.regex"},
    {"structured_output.grammar", "guided.ebnf_grammar"},
    {"structured_output.choice.texts", "guided.choice.choices"},
    {"structured_output.json_object", "guided.json_object"},
    {"structured_output", "guided"},
    {"text", "prompt"},
    {"prompt", "input"},
    {"priority", "openengine-priority"},
};

absl::Status CheckCandidates(const std::string& field, const oe::CandidateTokenSelection& choice) {
  const bool none = choice.top_n() == 0 && choice.token_ids().ids().empty() && !choice.has_all();
  if (none) return absl::OkStatus();
  return NotServed(field, "log probabilities are those of the sampled tokens alone");
}

absl::Status CheckResponse(const oe::ResponseOptions& response) {
  if (response.return_prompt_logprobs() || response.has_prompt_logprob_start()) {
    return NotServed(response.return_prompt_logprobs() ? "response.return_prompt_logprobs"
                                                       : "response.prompt_logprob_start",
                     "log probabilities are those of the output alone");
  }
  RETURN_IF_ERROR(CheckCandidates("response.prompt_candidates", response.prompt_candidates()));
  return CheckCandidates("response.output_candidates", response.output_candidates());
}

// Fields that are set and have no counterpart here.
absl::Status CheckServed(const oe::GenerateRequest& request) {
  if (request.request_id().empty()) return InvalidField("request_id", "missing");
  if (!request.media().empty()) return NotServed("media", "the model takes text alone");
  if (!request.lora_name().empty()) return NotServed("lora_name", "LoRA adapters are not served");
  if (!request.extra().fields().empty()) {
    return NotServed("extra." + request.extra().fields().begin()->first,
                     "this server has no settings beside the protocol's");
  }
  if (request.guided().has_structural_tag()) {
    return NotServed("guided.structural_tag", "outputs follow no tags");
  }
  if (!request.guided().backend().empty()) {
    return NotServed("guided.backend", "there is one way to guide");
  }
  if (request.kv().has_session()) {
    return NotServed("kv.session", "KV is not passed between engines");
  }
  if (!request.kv().cache_salt().empty()) {
    return NotServed("kv.cache_salt", "prefixes are kept apart by tenant, not by salt");
  }
  const oe::SamplingParams& sampling = request.sampling();
  if (sampling.has_num_sequences() && sampling.num_sequences() != 1) {
    return NotServed("sampling.num_sequences", "a request has one answer; send it several times");
  }
  if (sampling.top_k() < 0)
    return InvalidField("sampling.top_k", "must be at least 0, which is off");
  return CheckResponse(request.response());
}

void TranslateSampling(const oe::SamplingParams& in, v1::SamplingParams* out) {
  if (in.has_temperature()) out->set_temperature(static_cast<float>(in.temperature()));
  if (in.has_top_p()) out->set_top_p(static_cast<float>(in.top_p()));
  if (in.has_top_k()) out->set_top_k(static_cast<uint32_t>(in.top_k()));
  if (in.has_min_p()) out->set_min_p(static_cast<float>(in.min_p()));
  if (in.has_frequency_penalty()) {
    out->set_frequency_penalty(static_cast<float>(in.frequency_penalty()));
  }
  if (in.has_presence_penalty()) {
    out->set_presence_penalty(static_cast<float>(in.presence_penalty()));
  }
  if (in.has_repetition_penalty()) {
    out->set_repetition_penalty(static_cast<float>(in.repetition_penalty()));
  }
  if (in.has_seed()) out->set_seed(in.seed());
}

absl::Status TranslateStopping(const oe::StoppingOptions& in, v1::StopConditions* out) {
  if (in.has_max_tokens()) out->set_max_tokens(in.max_tokens());
  if (in.has_min_tokens()) out->set_min_tokens(in.min_tokens());
  for (int i = 0; i < in.conditions_size(); ++i) {
    const oe::StopCondition& condition = in.conditions(i);
    switch (condition.condition_case()) {
      case oe::StopCondition::kStopText: out->add_stop(condition.stop_text()); break;
      case oe::StopCondition::kStopTokenId:
        out->add_stop_token_ids(condition.stop_token_id());
        break;
      case oe::StopCondition::CONDITION_NOT_SET:
        return InvalidField("stopping.conditions[" + std::to_string(i) + "]",
                            "is empty; set stop_text or stop_token_id");
    }
  }
  out->set_ignore_eos(in.ignore_eos());
  out->set_include_stop_in_output(in.include_stop_in_output());
  return absl::OkStatus();
}

// The number in the metadata `key`; nullopt if it is not there.
template <typename Number>
absl::StatusOr<std::optional<Number>> NumberInMetadata(const grpc::ServerContextBase& context,
                                                       const std::string& key) {
  const auto [begin, end] = context.client_metadata().equal_range(key);
  if (begin == end) return std::nullopt;
  const std::string text(begin->second.data(), begin->second.size());
  Number number = 0;
  if (!absl::SimpleAtoi(text, &number)) {
    return InvalidField(key, "must be a whole number, in decimal digits");
  }
  return number;
}

// The protocol reserves the prefix: a key that we do not know is a request that we do not
// understand. A routing key is for the router in front.
absl::Status ApplyMetadata(const grpc::ServerContextBase& context, v1::GenerateRequest* out) {
  const auto& metadata = context.client_metadata();
  for (auto at = metadata.lower_bound(kPrefix); at != metadata.end(); ++at) {
    const std::string key(at->first.data(), at->first.size());
    if (key.rfind(kPrefix, 0) != 0) break;
    const bool known = key == "openengine-priority" || key == "openengine-target-dp-rank" ||
                       key == "openengine-routing-key";
    if (!known) return NotServed(key, "this server does not know the metadata");
    if (metadata.count(at->first) > 1) return InvalidField(key, "is there more than once");
  }
  ASSIGN_OR_RETURN(const std::optional<uint32_t> rank,
                   NumberInMetadata<uint32_t>(context, "openengine-target-dp-rank"));
  if (rank.value_or(0) != 0) {
    return InvalidField("openengine-target-dp-rank", "must be 0: this server has one replica");
  }
  ASSIGN_OR_RETURN(const std::optional<int32_t> priority,
                   NumberInMetadata<int32_t>(context, "openengine-priority"));
  if (priority.has_value()) out->set_priority(*priority);
  return absl::OkStatus();
}

void TranslateGuide(const oe::GuidedDecoding& in, v1::StructuredOutput* out) {
  switch (in.guide_case()) {
    case oe::GuidedDecoding::kJsonSchema: return out->set_json_schema(in.json_schema());
    case oe::GuidedDecoding::kRegex: return out->set_regex(in.regex());
    case oe::GuidedDecoding::kEbnfGrammar: return out->set_grammar(in.ebnf_grammar());
    case oe::GuidedDecoding::kJsonObject: return out->set_json_object(true);
    case oe::GuidedDecoding::kChoice:
      *out->mutable_choice()->mutable_texts() = in.choice().choices();
      return;
    case oe::GuidedDecoding::kStructuralTag:
    case oe::GuidedDecoding::GUIDE_NOT_SET: return;
  }
}

absl::StatusOr<v1::GenerateRequest> Translate(const oe::GenerateRequest& in) {
  RETURN_IF_ERROR(CheckServed(in));
  v1::GenerateRequest out;
  out.set_request_id(in.request_id());
  if (!in.model().empty()) out.set_model(in.model());
  if (in.has_prompt()) out.set_text(in.prompt());
  if (in.has_token_ids()) *out.mutable_token_ids()->mutable_ids() = in.token_ids().ids();
  TranslateSampling(in.sampling(), out.mutable_sampling());
  RETURN_IF_ERROR(TranslateStopping(in.stopping(), out.mutable_stop()));
  if (in.has_guided()) TranslateGuide(in.guided(), out.mutable_structured_output());
  out.mutable_output()->set_logprobs(in.response().return_output_logprobs());
  out.set_bypass_prefix_cache(in.kv().bypass_prefix_cache());
  return out;
}

oe::ErrorCode CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded: return oe::ERROR_CODE_CANCELLED;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable: return oe::ERROR_CODE_OVERLOADED;
    case absl::StatusCode::kInvalidArgument: return oe::ERROR_CODE_INVALID_ARGUMENT;
    default: return oe::ERROR_CODE_INTERNAL;
  }
}

// Whether the same request may succeed later or elsewhere.
bool Retryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         ReasonOf(status) == "ENGINE_FAULT";
}

class Format final : public WireFormat {
 public:
  absl::StatusOr<ParsedRequest> Decode(const grpc::ServerContextBase& context,
                                       const grpc::ByteBuffer& bytes, const ServingModel& model,
                                       uint64_t seed) override {
    oe::GenerateRequest request;
    RETURN_IF_ERROR(ParseKnownFields(bytes, &request));
    ASSIGN_OR_RETURN(v1::GenerateRequest translated, Translate(request));
    RETURN_IF_ERROR(ApplyMetadata(context, &translated));
    ASSIGN_OR_RETURN(ParsedRequest parsed, DecodeGenerate(translated, model, seed));
    request_id_ = parsed.request_id;
    encoder_.emplace(request_id_);
    const SamplingParams& sampling = parsed.request->sampling;
    if (!sampling.include_stop_in_output) hidden_ids_ = sampling.stop_token_ids;
    min_tokens_ = static_cast<uint32_t>(sampling.min_tokens);
    return parsed;
  }

  absl::Status Named(const absl::Status& status) const override {
    return WithFieldNames(status, kFieldNames);
  }

  // The protocol has no event for it.
  std::optional<std::string> Accepted(const AcceptedFrame&) override { return std::nullopt; }

  std::optional<std::string> Tokens(const OutputDelta& delta, const OutputOptions&) override {
    std::span<const uint32_t> ids = delta.token_ids;
    if (!ids.empty() && Hides(ids.back(), delta.cumulative)) ids = ids.first(ids.size() - 1);
    if (ids.empty() && delta.text.empty()) return std::nullopt;  // a hidden stop
    return encoder_->Encode(ids, delta.logprobs, delta.text);
  }

  std::optional<std::string> End(const EndFrame& end) override {
    oe::GenerateResponse response;
    response.set_request_id(request_id_);
    oe::GenerationFinished* finished = response.mutable_finished();
    finished->set_output_index(0);
    const auto stop_token = static_cast<uint32_t>(end.finish.stop_token);
    switch (end.finish.reason) {
      case FinishReason::kEos: finished->mutable_stop_match()->set_eos_token_id(stop_token); break;
      case FinishReason::kStopToken:
        finished->mutable_stop_match()->set_stop_token_id(stop_token);
        break;
      case FinishReason::kStopText:
        finished->mutable_stop_match()->set_stop_text(end.stop_text);
        break;
      default: break;
    }
    finished->set_reason(finished->has_stop_match() ? oe::FINISH_REASON_STOP
                                                    : oe::FINISH_REASON_LENGTH);
    const Usage& usage = end.finish.usage;
    FillUsage(usage.prompt_tokens, usage.completion_tokens, response.mutable_usage());
    response.mutable_usage()->set_cached_prompt_tokens(static_cast<uint32_t>(usage.cached_tokens));
    return response.SerializeAsString();
  }

  std::optional<std::string> Failure(const absl::Status& status, bool accepted) override {
    if (!accepted) return std::nullopt;
    oe::GenerateResponse response;
    response.set_request_id(request_id_);
    oe::EngineError* error = response.mutable_error();
    error->set_code(CodeOf(status));
    error->set_message(std::string(status.message().data(), status.message().size()));
    error->set_retryable(Retryable(status));
    return response.SerializeAsString();
  }

  absl::Status CheckSize(int64_t, int64_t) const override { return absl::OkStatus(); }

 private:
  // A stop token that the client does not want to see; `position` counts from 1. It ends the
  // output, so only the last token of a message can be one.
  bool Hides(uint32_t id, uint32_t position) const {
    if (hidden_ids_.empty() || position <= min_tokens_) return false;
    return std::find(hidden_ids_.begin(), hidden_ids_.end(), static_cast<int32_t>(id)) !=
           hidden_ids_.end();
  }

  static void FillUsage(int32_t prompt, int32_t completion, oe::Usage* out) {
    out->set_prompt_tokens(static_cast<uint32_t>(prompt));
    out->set_completion_tokens(static_cast<uint32_t>(completion));
    out->set_total_tokens(static_cast<uint32_t>(prompt + completion));
  }

  std::string request_id_;
  std::optional<TokenEncoder> encoder_;  // set by Decode
  std::vector<int32_t> hidden_ids_;
  uint32_t min_tokens_ = 0;
};

}  // namespace

std::unique_ptr<WireFormat> OpenEngineFormat(const ServingModel&) {
  return std::make_unique<Format>();
}

}  // namespace quire

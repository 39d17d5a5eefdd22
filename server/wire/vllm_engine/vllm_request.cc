// Where a number of the protocol has no presence, 0 means what vLLM's own server takes it for.
#include "server/wire/vllm_engine/vllm_request.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/status_macros.h"
#include "field/vllm_engine.pb.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

namespace wire = ::vllm::grpc::engine;

constexpr char kNoMedia[] = "this server takes text and token ids alone; leave it out";
constexpr char kNoTransfer[] = "this server does not take KV from another server; leave it out";

// A proto uint32 as the engine's int32; one that does not fit becomes a value outside every range.
int32_t Narrow(uint32_t value) {
  return static_cast<int32_t>(
      std::min<uint32_t>(value, static_cast<uint32_t>(std::numeric_limits<int32_t>::max())));
}

absl::Status Unsupported(const std::string& field, const std::string& why) {
  return InvalidField("sampling_params." + field, why);
}

// nullopt: the output is free.
absl::StatusOr<std::optional<Structure>> StructureOf(const wire::SamplingParams& in) {
  const std::string path = "sampling_params.";
  switch (in.constraint_case()) {
    case wire::SamplingParams::kJsonSchema:
      return MakeStructure({GrammarKind::kJsonSchema, in.json_schema(), {}}, path + "json_schema");
    case wire::SamplingParams::kRegex:
      return MakeStructure({GrammarKind::kRegex, in.regex(), {}}, path + "regex");
    case wire::SamplingParams::kGrammar:
      return MakeStructure({GrammarKindOf(in.grammar()), in.grammar(), {}}, path + "grammar");
    case wire::SamplingParams::kStructuralTag:
      return Unsupported("structural_tag",
                         "this server knows no tags; use json_schema, regex, grammar or choice");
    case wire::SamplingParams::kJsonObject:
      if (!in.json_object()) return std::nullopt;
      return MakeStructure({}, path + "json_object");
    case wire::SamplingParams::kChoice: {
      const auto& texts = in.choice().choices();
      return MakeStructure({GrammarKind::kChoice, "", {texts.begin(), texts.end()}},
                           path + "choice");
    }
    case wire::SamplingParams::CONSTRAINT_NOT_SET: break;
  }
  return std::nullopt;
}

absl::Status CheckSampling(const wire::SamplingParams& in) {
  if (in.has_prompt_logprobs()) {
    return Unsupported("prompt_logprobs",
                       "this server has no log probabilities of the prompt; leave it out");
  }
  if (in.has_truncate_prompt_tokens()) {
    return Unsupported("truncate_prompt_tokens",
                       "this server does not cut prompts; send the prompt cut");
  }
  if (in.has_max_tokens() && in.max_tokens() == 0) {
    return Unsupported("max_tokens", "must be at least 1");
  }
  if (in.logprobs() < 0 || in.logprobs() > kMaxTopTokens) {
    return Unsupported("logprobs", "must be between 0 and " + std::to_string(kMaxTopTokens) +
                                       ", not " + std::to_string(in.logprobs()));
  }
  return absl::OkStatus();
}

absl::Status CheckHonoured(const wire::GenerateRequest& request) {
  if (request.has_kv_transfer_params()) return InvalidField("kv_transfer_params", kNoTransfer);
  if (request.has_kv_transfer_params_json()) {
    return InvalidField("kv_transfer_params_json", kNoTransfer);
  }
  if (request.has_mm_inputs()) return InvalidField("mm_inputs", kNoMedia);
  if (!request.extra_mm_inputs().empty()) return InvalidField("extra_mm_inputs", kNoMedia);
  if (request.has_media_refs()) return InvalidField("media_refs", kNoMedia);
  if (request.data_parallel_rank() != 0) {
    return InvalidField("data_parallel_rank", "this server has rank 0 alone, not rank " +
                                                  std::to_string(request.data_parallel_rank()));
  }
  return CheckSampling(request.sampling_params());
}

void DecodeSampling(const wire::SamplingParams& in, uint64_t seed, SamplingParams* out) {
  SampleRow& row = out->row;
  row.temperature = in.has_temperature() ? in.temperature() : 1.0f;
  row.top_p = in.top_p() == 0 ? 1.0f : in.top_p();
  row.top_k = Narrow(in.top_k());
  row.min_p = in.min_p();
  row.frequency_penalty = in.frequency_penalty();
  row.presence_penalty = in.presence_penalty();
  row.repetition_penalty = in.repetition_penalty() == 0 ? 1.0f : in.repetition_penalty();
  row.seed = seed;
  if (in.has_seed() && in.seed() != -1) {
    row.seed = static_cast<uint64_t>(int64_t{in.seed()});
  }
  for (const auto& [token, bias] : in.logit_bias()) out->logit_bias.push_back({token, bias});
  std::sort(out->logit_bias.begin(), out->logit_bias.end(),
            [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
  out->logprobs = in.has_logprobs();
}

void DecodeStop(const wire::SamplingParams& in, const std::vector<int32_t>& eos,
                SamplingParams* out) {
  out->max_tokens =
      in.has_max_tokens() ? Narrow(in.max_tokens()) : std::numeric_limits<int32_t>::max();
  out->min_tokens = Narrow(in.min_tokens());
  out->stop.assign(in.stop().begin(), in.stop().end());
  for (const uint32_t id : in.stop_token_ids()) out->stop_token_ids.push_back(Narrow(id));
  out->include_stop_in_output = in.include_stop_str_in_output();
  out->ignore_eos = in.ignore_eos();
  if (!out->ignore_eos) out->eos_token_ids = eos;
}

// The engine names a field at the beginning of its message.
absl::Status WithPath(const absl::Status& status) {
  if (status.ok()) return status;
  const std::string message(status.message().data(), status.message().size());
  const size_t space = std::min(message.find(' '), message.size());
  return Unsupported(message.substr(0, space), message.substr(std::min(space + 1, message.size())));
}

absl::Status DecodePrompt(const wire::GenerateRequest& request, const ServingModel& model,
                          ParsedRequest* parsed) {
  switch (request.input_case()) {
    case wire::GenerateRequest::kTokenized: {
      parsed->kind = ParsedRequest::Prompt::kTokenIds;
      const auto& ids = request.tokenized().input_ids();
      if (ids.empty()) return InvalidField("tokenized.input_ids", "the prompt is empty");
      return DecodeTokenIds("tokenized.input_ids", {ids.data(), static_cast<size_t>(ids.size())},
                            model, &parsed->request->prompt);
    }
    case wire::GenerateRequest::kText:
      parsed->kind = ParsedRequest::Prompt::kText;
      parsed->text = request.text();
      return absl::OkStatus();
    case wire::GenerateRequest::INPUT_NOT_SET: break;
  }
  return InvalidField("input", "missing; set one of tokenized, text");
}

}  // namespace

absl::StatusOr<uint32_t> ChoicesOf(const wire::GenerateRequest& request) {
  const uint32_t n = request.sampling_params().n();
  if (n <= kMaxChoices) return std::max(n, 1u);
  return Unsupported(
      "n", "must be at most " + std::to_string(kMaxChoices) + ", not " + std::to_string(n));
}

absl::StatusOr<ParsedRequest> DecodeVllm(const wire::GenerateRequest& request,
                                         const ServingModel& model, uint64_t seed) {
  ParsedRequest parsed;
  parsed.request = std::make_unique<Request>();
  if (!request.request_id().empty()) {
    RETURN_IF_ERROR(CheckName("request_id", request.request_id()));
    parsed.request_id = request.request_id();
  }
  RETURN_IF_ERROR(CheckHonoured(request));
  ASSIGN_OR_RETURN(parsed.structure, StructureOf(request.sampling_params()));
  Request& out = *parsed.request;
  out.max_guesses = MostGuesses(model);
  const wire::SamplingParams& params = request.sampling_params();
  DecodeSampling(params, seed, &out.sampling);
  DecodeStop(params, model.setup.model.eos_token_ids, &out.sampling);
  if (params.logprobs() > 0) out.reading.num_top = params.logprobs();
  if (!params.has_max_tokens()) out.max_tokens_source = MaxTokensSource::kDefault;
  parsed.output = {
      .text = false, .token_ids = true, .skip_special_tokens = params.skip_special_tokens()};
  RETURN_IF_ERROR(WithPath(out.sampling.Validate(model.setup.model.vocab_size)));
  RETURN_IF_ERROR(DecodePrompt(request, model, &parsed));
  return parsed;
}

}  // namespace quire

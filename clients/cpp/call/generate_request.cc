// One line per flag.
#include "clients/cpp/call/generate_request.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "clients/cpp/call/chat_request.h"
#include "clients/cpp/call/structure_request.h"

namespace quire::cli {
namespace {

void SetChat(const PromptFlags& flags, const v1::ChatMessages& chat, const std::string& text,
             v1::ChatMessages* out) {
  *out = chat;
  if (TakesText(flags)) AddUserMessage(text, out);
}

const google::protobuf::FieldDescriptor* Field(const std::string& name) {
  return v1::SamplingParams::descriptor()->FindFieldByName(name);
}

void SetFields(const SamplingFlags& flags, v1::SamplingParams* sampling) {
  const google::protobuf::Reflection* fields = sampling->GetReflection();
  for (const auto& [name, value] : flags.numbers) {
    if (value) fields->SetFloat(sampling, Field(name), *value);
  }
  for (const auto& [name, value] : flags.counts) {
    if (value) fields->SetUInt32(sampling, Field(name), *value);
  }
  for (const auto& [name, ids] : flags.ids) {
    for (const uint32_t id : ids) fields->AddUInt32(sampling, Field(name), id);
  }
}

absl::Status SetSampling(const SamplingFlags& flags, v1::SamplingParams* sampling) {
  SetFields(flags, sampling);
  if (flags.seed) sampling->set_seed(*flags.seed);
  for (const std::string& word : flags.bad_words) {
    v1::TokenIds* ids = sampling->add_bad_word_ids();
    for (const absl::string_view text : absl::StrSplit(word, ',')) {
      uint32_t id = 0;
      if (!absl::SimpleAtoi(text, &id)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--bad-word-ids ", word, ": write it as ID,ID, for example 42,7"));
      }
      ids->add_ids(id);
    }
  }
  for (const std::string& name : flags.logit_processors) sampling->add_logit_processors(name);
  for (const std::string& entry : flags.logit_bias) {
    const size_t equals = entry.find('=');
    uint32_t id = 0;
    float value = 0;
    if (equals == std::string::npos || !absl::SimpleAtoi(entry.substr(0, equals), &id) ||
        !absl::SimpleAtof(entry.substr(equals + 1), &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--logit-bias ", entry, ": write it as ID=VALUE, for example 42=-100"));
    }
    (*sampling->mutable_logit_bias())[id] = value;
  }
  return absl::OkStatus();
}

void SetStop(const StopFlags& flags, v1::StopConditions* stop) {
  if (flags.max_tokens) stop->set_max_tokens(*flags.max_tokens);
  if (flags.min_tokens) stop->set_min_tokens(*flags.min_tokens);
  for (const std::string& text : flags.stop) stop->add_stop(text);
  for (const uint32_t id : flags.stop_token_ids) stop->add_stop_token_ids(id);
  if (flags.include_stop) stop->set_include_stop_in_output(true);
  if (flags.ignore_eos) stop->set_ignore_eos(true);
  if (flags.loop_max_tokens) stop->set_loop_max_tokens(*flags.loop_max_tokens);
  if (flags.loop_min_repeats) stop->set_loop_min_repeats(*flags.loop_min_repeats);
}

void SetReasoning(const AnswerFlags& flags, v1::GenerateRequest* request) {
  if (!flags.split_reasoning) request->mutable_reasoning()->set_split(false);
  if (flags.max_tokens) request->mutable_reasoning()->set_max_tokens(*flags.max_tokens);
  if (flags.min_tokens) request->mutable_reasoning()->set_min_tokens(*flags.min_tokens);
}

void SetScores(const GenerateFlags& flags, v1::GenerateRequest* request) {
  if (flags.logprobs) request->mutable_output()->set_logprobs(true);
  if (flags.top_logprobs) request->mutable_output()->set_top_logprobs(*flags.top_logprobs);
  if (flags.prompt_logprobs) request->mutable_output()->set_prompt_logprobs(*flags.prompt_logprobs);
  if (flags.processed_logprobs) request->mutable_output()->set_processed_logprobs(true);
  for (const uint32_t id : flags.logprob_token_ids) {
    request->mutable_output()->add_logprob_token_ids(id);
  }
}

}  // namespace

absl::StatusOr<v1::GenerateRequest> ToRequest(const GenerateFlags& flags,
                                              const std::optional<std::string>& model,
                                              const v1::ChatMessages& chat,
                                              const std::string& text) {
  v1::GenerateRequest request;
  if (flags.request_id) request.set_request_id(*flags.request_id);
  if (flags.detach_seconds) request.set_detach_seconds(*flags.detach_seconds);
  if (model) request.set_model(*model);
  if (!flags.prompt.token_ids.empty()) {
    for (const uint32_t id : flags.prompt.token_ids) request.mutable_token_ids()->add_ids(id);
  } else if (IsChat(flags.prompt)) {
    SetChat(flags.prompt, chat, text, request.mutable_chat());
  } else {
    request.set_text(text);
  }
  if (!flags.prompt.special_tokens) request.set_add_special_tokens(false);
  const absl::Status sampled = SetSampling(flags.sampling, request.mutable_sampling());
  if (!sampled.ok()) return sampled;
  SetStop(flags.stop, request.mutable_stop());
  const absl::Status structured = SetStructure(flags.structure, &request);
  if (!structured.ok()) return structured;
  SetReasoning(flags.answer, &request);
  if (flags.print_ids) request.mutable_output()->set_text(false);
  SetScores(flags, &request);
  if (flags.keep_special_tokens) request.mutable_output()->set_skip_special_tokens(false);
  if (flags.priority) request.set_priority(*flags.priority);
  if (flags.max_guesses) request.mutable_speculation()->set_max_guesses(*flags.max_guesses);
  if (flags.session) {
    request.set_session_id(*flags.session);
    request.set_create_session(true);
  }
  if (flags.expected_position) request.set_expected_position(*flags.expected_position);
  if (!flags.prefix_cache) request.set_bypass_prefix_cache(true);
  if (flags.n) request.set_n(*flags.n);
  if (flags.best_of) request.set_best_of(*flags.best_of);
  return request;
}

v1::TokenizeRequest ToRequest(const TokenizeFlags& flags, const std::optional<std::string>& model,
                              const v1::ChatMessages& chat, const std::string& text) {
  v1::TokenizeRequest request;
  if (model) request.set_model(*model);
  if (IsChat(flags.prompt)) {
    SetChat(flags.prompt, chat, text, request.mutable_chat());
  } else {
    request.set_text(text);
  }
  if (!flags.prompt.special_tokens) request.set_add_special_tokens(false);
  if (flags.offsets) request.set_offsets(true);
  return request;
}

std::optional<v1::SessionOptions> ToOptions(const SessionFlags& flags) {
  v1::SessionOptions options;
  if (flags.ttl_seconds) options.set_ttl_seconds(*flags.ttl_seconds);
  if (flags.idle_offload_after_seconds) {
    options.set_idle_offload_after_seconds(*flags.idle_offload_after_seconds);
  }
  if (flags.retain_priority) options.set_retain_priority(*flags.retain_priority);
  if (options.ByteSizeLong() == 0) return std::nullopt;
  return options;
}

}  // namespace quire::cli

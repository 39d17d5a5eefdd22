// One table of the members that are served; a name that it lacks is refused.
#include "server/lines/openai_body.h"

#include <charconv>
#include <string>

#include "engine/base/status_macros.h"
#include "server/call/status_codec.h"
#include "server/lines/json_parts.h"
#include "server/lines/openai_chat.h"
#include "server/lines/openai_member.h"

namespace quire {
namespace {

// OpenAI's default for completions.
constexpr uint32_t kCompletionTokens = 16;

using Member = OpenAiMember;
using Request = v1::GenerateRequest;

template <void (v1::SamplingParams::*set)(float)>
absl::Status Sampling(const Member& member, Request* request) {
  ASSIGN_OR_RETURN(const float value, ReadNumber(member));
  (request->mutable_sampling()->*set)(value);
  return absl::OkStatus();
}

absl::Status ReadTopK(const Member& member, Request* request) {
  uint32_t value = 0;  // all, for which vLLM writes -1; unset would be the model's own default
  if (member.value != -1) {
    ASSIGN_OR_RETURN(value, ReadCount(member));
  }
  request->mutable_sampling()->set_top_k(value);
  return absl::OkStatus();
}

absl::Status ReadSeed(const Member& member, Request* request) {
  if (!member.value.is_number_integer()) {
    return InvalidField(member.path, "must be a whole number");
  }
  const uint64_t seed = member.value.is_number_unsigned()
                            ? member.value.get<uint64_t>()
                            : static_cast<uint64_t>(member.value.get<int64_t>());
  request->mutable_sampling()->set_seed(seed);
  return absl::OkStatus();
}

absl::Status ReadLogitBias(const Member& member, Request* request) {
  RETURN_IF_ERROR(CheckObject(member));
  for (const auto& [key, bias] : member.value.items()) {
    if (bias.is_null()) continue;
    uint32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      return InvalidField(member.path, "has a member that is no token id");
    }
    ASSIGN_OR_RETURN(const float value, ReadNumber({member.path, bias, {}}));
    (*request->mutable_sampling()->mutable_logit_bias())[id] = value;
  }
  return absl::OkStatus();
}

absl::Status ReadMaxTokens(const Member& member, Request* request) {
  if (request->stop().has_max_tokens()) {
    return InvalidField(member.path,
                        "max_tokens and max_completion_tokens are one limit; set one of the two");
  }
  ASSIGN_OR_RETURN(const uint32_t value, ReadCount(member));
  request->mutable_stop()->set_max_tokens(value);
  return absl::OkStatus();
}

absl::Status ReadMinTokens(const Member& member, Request* request) {
  ASSIGN_OR_RETURN(const uint32_t value, ReadCount(member));
  request->mutable_stop()->set_min_tokens(value);
  return absl::OkStatus();
}

absl::Status ReadIgnoreEos(const Member& member, Request* request) {
  ASSIGN_OR_RETURN(const bool value, ReadBool(member));
  request->mutable_stop()->set_ignore_eos(value);
  return absl::OkStatus();
}

absl::Status ReadStop(const Member& member, Request* request) {
  if (member.value.is_string()) {
    request->mutable_stop()->add_stop(member.value.get<std::string>());
    return absl::OkStatus();
  }
  if (!member.value.is_array()) {
    return InvalidField(member.path, "must be a text or a list of texts");
  }
  for (const nlohmann::json& text : member.value) {
    ASSIGN_OR_RETURN(*request->mutable_stop()->add_stop(), ReadText({member.path, text, {}}));
  }
  return absl::OkStatus();
}

absl::Status ReadModel(const Member& member, Request* request) {
  ASSIGN_OR_RETURN(*request->mutable_model(), ReadText(member));
  return absl::OkStatus();
}

absl::Status ReadN(const Member& member, Request* request) {
  ASSIGN_OR_RETURN(const uint32_t value, ReadCount(member));
  request->set_n(value);
  return absl::OkStatus();
}

// Names the caller's customer; this server has no accounts of customers.
absl::Status ReadUser(const Member& member, Request*) { return ReadText(member).status(); }

absl::Status ReadStream(const Member& member, Request*) {
  ASSIGN_OR_RETURN(const bool stream, ReadBool(member));
  return stream ? InvalidField(member.path, "a line has one result; leave it out")
                : absl::OkStatus();
}

absl::Status ReadLogprobs(const Member& member, Request* request) {
  ASSIGN_OR_RETURN(const bool value, ReadBool(member));
  // top_logprobs may have come before.
  if (value && !request->output().has_top_logprobs()) {
    request->mutable_output()->set_top_logprobs(0);
  }
  return absl::OkStatus();
}

absl::Status ReadTopLogprobs(const Member& member, Request* request) {
  ASSIGN_OR_RETURN(const uint32_t value, ReadCount(member));
  request->mutable_output()->set_top_logprobs(value);
  return absl::OkStatus();
}

absl::Status ReadPrompt(const Member& member, Request* request) {
  if (member.value.is_string()) {
    request->set_text(member.value.get<std::string>());
    return absl::OkStatus();
  }
  const absl::Status fault =
      InvalidField(member.path, "must be a text or a list of token ids: a line has one prompt");
  if (!member.value.is_array()) return fault;
  v1::TokenIds& ids = *request->mutable_token_ids();
  for (const nlohmann::json& id : member.value) {
    const absl::StatusOr<uint32_t> value = ReadCount({member.path, id, {}});
    if (!value.ok()) return fault;
    ids.add_ids(*value);
  }
  return absl::OkStatus();
}

// Refuses what is not in `known`.
template <size_t size>
absl::Status CheckNames(const Member& object, const char* const (&known)[size]) {
  RETURN_IF_ERROR(CheckObject(object));
  for (const auto& [key, value] : object.value.items()) {
    bool found = value.is_null();
    for (const char* name : known) found = found || key == name;
    if (!found) return UnknownMember(object.path + "." + key);
  }
  return absl::OkStatus();
}

absl::Status ReadSchema(const Member& member, Request* request) {
  RETURN_IF_ERROR(CheckNames(member, {"name", "description", "schema", "strict"}));
  const auto schema = member.value.find("schema");
  if (schema == member.value.end() || schema->is_null()) {
    return InvalidField(member.path + ".schema", "missing");
  }
  request->mutable_structured_output()->set_json_schema(
      std::string(JsonMember(member.text, "schema")));
  return absl::OkStatus();
}

absl::Status ReadResponseFormat(const Member& member, Request* request) {
  RETURN_IF_ERROR(CheckNames(member, {"type", "json_schema"}));
  const nlohmann::json type = member.value.value("type", nlohmann::json());
  if (type == "text") return absl::OkStatus();
  if (type == "json_object") {
    request->mutable_structured_output()->set_json_object(true);
    return absl::OkStatus();
  }
  if (type != "json_schema") {
    return InvalidField(member.path + ".type",
                        "must be \"text\", \"json_object\" or \"json_schema\"");
  }
  const std::string path = member.path + ".json_schema";
  const auto schema = member.value.find("json_schema");
  if (schema == member.value.end() || schema->is_null()) return InvalidField(path, "missing");
  return ReadSchema({path, *schema, JsonMember(member.text, "json_schema")}, request);
}

enum class Where { kBoth, kChat, kCompletion };

struct Served {
  std::string_view name;
  Where where;
  absl::Status (*read)(const Member& member, Request* request);
};

constexpr Served kServed[] = {
    {"model", Where::kBoth, ReadModel},
    {"messages", Where::kChat, ReadMessages},
    {"prompt", Where::kCompletion, ReadPrompt},
    {"max_tokens", Where::kBoth, ReadMaxTokens},
    {"max_completion_tokens", Where::kChat, ReadMaxTokens},
    {"temperature", Where::kBoth, Sampling<&v1::SamplingParams::set_temperature>},
    {"top_p", Where::kBoth, Sampling<&v1::SamplingParams::set_top_p>},
    {"n", Where::kBoth, ReadN},
    {"stop", Where::kBoth, ReadStop},
    {"seed", Where::kBoth, ReadSeed},
    {"presence_penalty", Where::kBoth, Sampling<&v1::SamplingParams::set_presence_penalty>},
    {"frequency_penalty", Where::kBoth, Sampling<&v1::SamplingParams::set_frequency_penalty>},
    {"logit_bias", Where::kBoth, ReadLogitBias},
    {"logprobs", Where::kChat, ReadLogprobs},
    {"logprobs", Where::kCompletion, ReadTopLogprobs},
    {"top_logprobs", Where::kChat, ReadTopLogprobs},
    {"response_format", Where::kBoth, ReadResponseFormat},
    {"tools", Where::kChat, ReadTools},
    {"tool_choice", Where::kChat, ReadToolChoice},
    {"user", Where::kBoth, ReadUser},
    {"stream", Where::kBoth, ReadStream},
    // vLLM's own.
    {"top_k", Where::kBoth, ReadTopK},
    {"min_p", Where::kBoth, Sampling<&v1::SamplingParams::set_min_p>},
    {"repetition_penalty", Where::kBoth, Sampling<&v1::SamplingParams::set_repetition_penalty>},
    {"min_tokens", Where::kBoth, ReadMinTokens},
    {"ignore_eos", Where::kBoth, ReadIgnoreEos},
};

absl::Status ReadMember(Where here, const Member& member, Request* request) {
  for (const Served& served : kServed) {
    const bool fits = served.where == Where::kBoth || served.where == here;
    if (fits && served.name == member.path) return served.read(member, request);
  }
  return UnknownMember(member.path);
}

// Checks what the members must be together.
absl::Status CheckBody(OpenAiCall call, const nlohmann::json& body, Request* request) {
  const auto has = [&body](const char* name) {
    const auto member = body.find(name);
    return member != body.end() && !member->is_null();
  };
  if (call == OpenAiCall::kCompletion) {
    if (!has("prompt")) return InvalidField("prompt", "missing");
    if (!request->stop().has_max_tokens()) {
      request->mutable_stop()->set_max_tokens(kCompletionTokens);
    }
    return absl::OkStatus();
  }
  if (!has("messages")) return InvalidField("messages", "missing");
  if (has("top_logprobs") && body.value("logprobs", nlohmann::json()) != true) {
    return InvalidField("top_logprobs", "needs logprobs to be true");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadOpenAiBody(OpenAiCall call, const nlohmann::json& body, std::string_view text,
                            v1::GenerateRequest* request) {
  const Where here = call == OpenAiCall::kChat ? Where::kChat : Where::kCompletion;
  for (JsonPart& part : SplitJson(text)) {
    const nlohmann::json& value = body.at(part.key);
    if (value.is_null()) continue;
    RETURN_IF_ERROR(ReadMember(here, {std::move(part.key), value, part.text}, request));
  }
  RETURN_IF_ERROR(CheckBody(call, body, request));
  request->mutable_output()->set_token_ids(false);
  return absl::OkStatus();
}

}  // namespace quire

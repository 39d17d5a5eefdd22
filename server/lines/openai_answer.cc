// Members that OpenAI's schema requires are there even where they are null.
#include "server/lines/openai_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/call/status_codec.h"
#include "server/lines/item_status.h"

namespace quire {
namespace {

// Keeps the order of OpenAI's documentation. Its objects are small: finding a member takes a look
// at all of them.
using Json = nlohmann::ordered_json;

// JSON has no infinity; this is OpenAI's word for a token that could not be drawn.
constexpr float kLeastLogprob = -9999;

std::string OneLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const char* ReasonFor(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_MAX_TOKENS:
    case v1::FINISH_REASON_CONTEXT_LIMIT:
    case v1::FINISH_REASON_TRUNCATED: return "length";
    case v1::FINISH_REASON_TOOL_CALLS: return "tool_calls";
    default: return "stop";
  }
}

// --- Log probabilities.

// Log probabilities are most of a long line, and many times that in memory: so the bytes of their
// parts are counted while they are made, and no more are made than a line may have.
class TokenWriter {
 public:
  TokenWriter(const Tokenizer* tokenizer, int64_t max_bytes)
      : tokenizer_(tokenizer), bytes_left_(max_bytes) {}

  // The parts so far are longer than the line may be.
  bool full() const { return bytes_left_ < 0; }
  // The part is in the line.
  void Count(const Json& part) { bytes_left_ -= static_cast<int64_t>(OneLine(part).size()); }

  std::string_view Bytes(uint32_t id) const {
    if (tokenizer_ == nullptr) return {};
    return tokenizer_->TokenBytes(static_cast<int32_t>(id), /*skip_special=*/false);
  }
  // With U+FFFD for a part of a code point.
  std::string Text(uint32_t id) const {
    return nlohmann::json::parse(OneLine(Json(std::string(Bytes(id))))).get<std::string>();
  }
  Json Entry(uint32_t id, float logprob) {
    Json bytes = Json::array();
    for (const char byte : Bytes(id)) bytes.push_back(static_cast<uint8_t>(byte));
    Json entry = {{"token", Text(id)},
                  {"logprob", std::max(logprob, kLeastLogprob)},
                  {"bytes", std::move(bytes)}};
    Count(entry);
    return entry;
  }

 private:
  const Tokenizer* const tokenizer_;
  int64_t bytes_left_;
};

template <typename Scores>
Json ChatLogprobs(const Scores& scores, TokenWriter& tokens) {
  if (scores.empty()) return nullptr;
  Json content = Json::array();
  for (const v1::TokenScore& score : scores) {
    if (tokens.full()) break;
    Json entry = tokens.Entry(score.token_id(), score.logprob());
    Json top = Json::array();
    for (int i = 0; i < score.top_ids_size(); ++i) {
      top.push_back(tokens.Entry(score.top_ids(i), score.top_logprobs(i)));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

int64_t CodePoints(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

template <typename Scores>
Json CompletionLogprobs(const Scores& scores, TokenWriter& tokens) {
  if (scores.empty()) return nullptr;
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array();
  Json offsets = Json::array();
  int64_t offset = 0;
  for (const v1::TokenScore& score : scores) {
    if (tokens.full()) break;
    const std::string text = tokens.Text(score.token_id());
    const float logprob = std::max(score.logprob(), kLeastLogprob);
    Json top = Json::object();
    for (int i = 0; i < score.top_ids_size(); ++i) {
      top[tokens.Text(score.top_ids(i))] = std::max(score.top_logprobs(i), kLeastLogprob);
    }
    top[text] = logprob;  // always among them
    tokens.Count(top);
    texts.push_back(text);
    logprobs.push_back(logprob);
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += CodePoints(text);
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

// --- Answers: of a GenerateResult, which is the first one, or a FurtherAnswer.

template <typename Answer>
Json MessageOf(const Answer& answer) {
  Json message = {{"role", "assistant"}, {"content", answer.text()}, {"refusal", nullptr}};
  if (answer.has_reasoning()) message["reasoning_content"] = answer.reasoning();
  if (answer.tool_calls().empty()) return message;
  if (answer.text().empty()) message["content"] = nullptr;
  for (const v1::ToolCallDelta& call : answer.tool_calls()) {
    message["tool_calls"].push_back(
        {{"id", call.id()},
         {"type", "function"},
         {"function", {{"name", call.name()}, {"arguments", call.arguments()}}}});
  }
  return message;
}

template <typename Answer>
Json ChoiceOf(OpenAiCall call, const Answer& answer, TokenWriter& tokens) {
  Json choice = {{"index", answer.finished().index()}};
  if (call == OpenAiCall::kChat) {
    choice["message"] = MessageOf(answer);
    choice["logprobs"] = ChatLogprobs(answer.scores(), tokens);
  } else {
    choice["text"] = answer.text();
    choice["logprobs"] = CompletionLogprobs(answer.scores(), tokens);
  }
  choice["finish_reason"] = ReasonFor(answer.finished().reason());
  return choice;
}

// Of the whole request; reasoning is counted by answer.
Json UsageOf(const v1::GenerateResult& result) {
  v1::Usage all = result.finished().usage();
  uint32_t reasoning = all.reasoning_tokens();
  if (result.finished().has_request_usage()) all = result.finished().request_usage();
  for (const v1::FurtherAnswer& answer : result.further_answers()) {
    reasoning += answer.finished().usage().reasoning_tokens();
    if (answer.finished().has_request_usage()) all = answer.finished().request_usage();
  }
  return {{"prompt_tokens", all.prompt_tokens()},
          {"completion_tokens", all.completion_tokens()},
          {"total_tokens", all.prompt_tokens() + all.completion_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", all.cached_tokens()}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

// --- Lines.

std::string LineOf(const OpenAiPlace& place, int status_code, Json request_id, Json body) {
  return OneLine({{"id", "batch_req_" + std::to_string(place.number)},
                  {"custom_id", place.custom_id},
                  {"response",
                   {{"status_code", status_code},
                    {"request_id", std::move(request_id)},
                    {"body", std::move(body)}}},
                  {"error", nullptr}});
}

// As gateways answer such a status over HTTP.
int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange: return 400;
    case absl::StatusCode::kUnauthenticated: return 401;
    case absl::StatusCode::kPermissionDenied: return 403;
    case absl::StatusCode::kNotFound: return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted: return 409;
    case absl::StatusCode::kResourceExhausted: return 429;
    case absl::StatusCode::kCancelled: return 499;
    case absl::StatusCode::kUnimplemented: return 501;
    case absl::StatusCode::kUnavailable: return 503;
    case absl::StatusCode::kDeadlineExceeded: return 504;
    default: return 500;
  }
}

struct Renamed {
  std::string_view quire;   // the begin of a path
  std::string_view theirs;  // instead of it
  bool whole = false;       // instead of all of the path, because what is below has another form
};

constexpr Renamed kRenamed[] = {
    {"structured_output", "response_format", true},
    {"token_ids", "prompt", true},
    {"text", "prompt", true},
    {"output.", ""},
    {"sampling.", ""},
    {"stop.", ""},
    {"chat.", ""},
};

std::string OpenAiName(OpenAiCall call, const std::string& field) {
  if (call == OpenAiCall::kCompletion && field == "output.top_logprobs") return "logprobs";
  for (const Renamed& name : kRenamed) {
    if (!field.starts_with(name.quire)) continue;
    return std::string(name.theirs) + (name.whole ? "" : field.substr(name.quire.size()));
  }
  return field;
}

}  // namespace

absl::Status WithOpenAiNames(OpenAiCall call, const absl::Status& status) {
  const std::string field = FieldOf(status);
  if (field.empty()) return status;
  std::string text(status.message().data(), status.message().size());
  if (text.starts_with(field + ": ")) text.erase(0, field.size() + 2);
  return InvalidField(OpenAiName(call, field), text);
}

std::optional<std::string> WriteOpenAiAnswer(const OpenAiPlace& place,
                                             const v1::GenerateResult& result,
                                             const Tokenizer* tokenizer, int64_t max_bytes) {
  TokenWriter tokens(tokenizer, max_bytes);
  const bool chat = place.call == OpenAiCall::kChat;
  Json choices = Json::array({ChoiceOf(place.call, result, tokens)});
  for (const v1::FurtherAnswer& answer : result.further_answers()) {
    choices.push_back(ChoiceOf(place.call, answer, tokens));
  }
  if (tokens.full()) return std::nullopt;
  std::string line = LineOf(place, 200, result.request_id(),
                            {{"id", (chat ? "chatcmpl-" : "cmpl-") + result.request_id()},
                             {"object", chat ? "chat.completion" : "text_completion"},
                             {"created", absl::ToUnixSeconds(absl::Now())},
                             {"model", result.accepted().model()},
                             {"choices", std::move(choices)},
                             {"usage", UsageOf(result)}});
  if (static_cast<int64_t>(line.size()) > max_bytes) return std::nullopt;
  return line;
}

std::string WriteOpenAiError(const OpenAiPlace& place, const absl::Status& status) {
  const int code = HttpStatusOf(status);
  v1::ItemStatus item;  // its texts are bounded
  FillItemStatus(status, &item);
  const std::string field = item.field(), reason = absl::AsciiStrToLower(item.reason());
  return LineOf(place, code, nullptr,
                {{"error",
                  {{"message", item.message()},
                   {"type", code < 500 ? "invalid_request_error" : "server_error"},
                   {"param", field.empty() ? Json(nullptr) : Json(field)},
                   {"code", reason.empty() ? Json(nullptr) : Json(reason)}}}});
}

}  // namespace quire

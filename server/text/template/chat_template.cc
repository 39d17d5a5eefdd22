// Finds a checkpoint's template and renders messages with it.
#include "server/text/template/chat_template.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/text/template/jinja_interpreter.h"
#include "server/text/template/jinja_parser.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

constexpr size_t kMaxTemplateBytes = 256 << 10;

jinja::Value MessageList(const std::vector<ChatMessage>& messages) {
  jinja::List list;
  for (const ChatMessage& message : messages) {
    list.push_back(jinja::Value::Of(jinja::Dict{{"role", jinja::Value::Of(message.role)},
                                                {"content", jinja::Value::Of(message.content)}}));
  }
  return jinja::Value::Of(std::move(list));
}

// A token of tokenizer_config.json: a string, or an added token with its content.
std::string TokenText(const nlohmann::json& config, const char* key) {
  if (!config.contains(key)) return "";
  const nlohmann::json& token = config.at(key);
  if (token.is_string()) return token.get<std::string>();
  const bool has_content = token.is_object() && token.contains("content");
  return has_content && token.at("content").is_string() ? token.at("content").get<std::string>()
                                                        : "";
}

// chat_template is a string, or a list of named templates; the one named "default" is for chats.
absl::StatusOr<std::string> TemplateText(const nlohmann::json& config, const std::string& path) {
  if (!config.contains("chat_template") || config.at("chat_template").is_null()) {
    return absl::NotFoundError(absl::StrCat(path, ": no chat_template"));
  }
  const nlohmann::json& value = config.at("chat_template");
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    for (const nlohmann::json& named : value) {
      if (named.is_object() && named.value("name", nlohmann::json()) == "default" &&
          named.contains("template") && named.at("template").is_string()) {
        return named.at("template").get<std::string>();
      }
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": chat_template is neither a string nor a list with a 'default'"));
}

}  // namespace

struct ChatTemplate::Data {
  jinja::Block block;
  std::string bos_token, eos_token;

  absl::StatusOr<jinja::Outcome> Run(const std::vector<ChatMessage>& messages,
                                     bool add_generation_prompt) const {
    std::vector<std::pair<std::string, jinja::Value>> globals = {
        {"messages", MessageList(messages)},
        {"add_generation_prompt", jinja::Value::Of(add_generation_prompt)},
        {"tools", jinja::Value::MakeNone()},
        {"documents", jinja::Value::MakeNone()},
    };
    // Without such a token the name stays undefined.
    if (!bos_token.empty()) globals.emplace_back("bos_token", jinja::Value::Of(bos_token));
    if (!eos_token.empty()) globals.emplace_back("eos_token", jinja::Value::Of(eos_token));
    return jinja::Run(block, std::move(globals), jinja::Limits());
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Parse(
    const std::string& source, const std::string& bos_token, const std::string& eos_token) {
  if (source.size() > kMaxTemplateBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("chat template: ", source.size(), " bytes; the limit is ", kMaxTemplateBytes));
  }
  auto data = std::make_unique<Data>();
  data->bos_token = bos_token;
  data->eos_token = eos_token;
  absl::StatusOr<jinja::Block> block = jinja::Parse(source);
  if (!block.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("chat template: ", block.status().message()));
  }
  data->block = *std::move(block);
  // A template may raise on this sample conversation; other errors are unsupported constructs.
  const auto outcome = data->Run({{"user", "Hello"}}, /*add_generation_prompt=*/true);
  if (!outcome.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("chat template: ", outcome.status().message()));
  }
  return std::unique_ptr<const ChatTemplate>(new ChatTemplate(std::move(data)));
}

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Load(const std::string& dir) {
  const std::string config_path = dir + "/tokenizer_config.json";
  absl::StatusOr<nlohmann::json> config = ReadJsonFile(config_path);
  if (!config.ok() && config.status().code() != absl::StatusCode::kNotFound) return config.status();
  if (!config.ok() || !config->is_object()) config = nlohmann::json::object();

  const std::string file_path = dir + "/chat_template.jinja";
  std::ifstream file(file_path, std::ios::binary);
  std::string source, path = file_path;
  if (file) {
    source.assign(std::istreambuf_iterator<char>(file), {});
  } else {
    path = config_path;
    ASSIGN_OR_RETURN(source, TemplateText(*config, path));
  }
  auto parsed = Parse(source, TokenText(*config, "bos_token"), TokenText(*config, "eos_token"));
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", parsed.status().message()));
  }
  return parsed;
}

absl::StatusOr<std::string> ChatTemplate::Render(const std::vector<ChatMessage>& messages,
                                                 bool add_generation_prompt) const {
  for (size_t i = 0; i < messages.size(); ++i) {
    // The interpreter reads code points, so invalid UTF-8 must not reach it.
    for (const std::string* text : {&messages[i].role, &messages[i].content}) {
      if (FindInvalidUtf8(*text) != std::string::npos) {
        return absl::InvalidArgumentError(absl::StrCat("messages[", i, "] is not valid UTF-8"));
      }
    }
  }
  auto outcome = data_->Run(messages, add_generation_prompt);
  if (!outcome.ok() || outcome->raised) {
    const std::string reason =
        outcome.ok() ? outcome->text : std::string(outcome.status().message());
    return absl::InvalidArgumentError(absl::StrCat("chat template: ", reason));
  }
  return std::move(outcome->text);
}

}  // namespace quire

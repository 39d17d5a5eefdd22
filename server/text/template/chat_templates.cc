// Finds templates where transformers does, and in its order.
#include "server/text/template/chat_templates.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr size_t kMaxTemplates = 64;
constexpr char kDefault[] = "default";
constexpr char kToolUse[] = "tool_use";
constexpr char kNoTemplates[] =
    ": chat_template is neither a string nor a list of {name, template}";

// A token of tokenizer_config.json: a string, or an added token with its content.
jinja::Value TokenText(const json& token) {
  if (token.is_string()) return jinja::Value::Of(token.get<std::string>());
  if (token.is_object() && token.contains("content") && token.at("content").is_string()) {
    return jinja::Value::Of(token.at("content").get<std::string>());
  }
  return jinja::Value();
}

// A model without such a token leaves the name undefined.
TemplateVariables SpecialTokens(const json& config) {
  TemplateVariables out;
  const auto add = [&out](const std::string& name, const json& token) {
    jinja::Value text = TokenText(token);
    if (!text.is_undefined()) out.emplace_back(name, std::move(text));
  };
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    if (config.contains(name)) add(name, config.at(name));
  }
  // Tokens that a model names itself, such as image_token.
  if (config.contains("extra_special_tokens") && config.at("extra_special_tokens").is_object()) {
    for (const auto& [name, token] : config.at("extra_special_tokens").items()) add(name, token);
  }
  if (config.contains("additional_special_tokens") &&
      config.at("additional_special_tokens").is_array()) {
    jinja::List tokens;
    for (const json& token : config.at("additional_special_tokens")) {
      jinja::Value text = TokenText(token);
      if (!text.is_undefined()) tokens.push_back(std::move(text));
    }
    out.emplace_back("additional_special_tokens", jinja::Value::Of(std::move(tokens)));
  }
  return out;
}

// An object; an empty one where there is no file.
absl::StatusOr<json> ReadConfig(const std::string& path) {
  absl::StatusOr<json> config = ReadJsonFile(path);
  if (!config.ok() && !absl::IsNotFound(config.status())) return config.status();
  if (!config.ok() || !config->is_object()) return json::object();
  return config;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, ": there is no such file"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  return text;
}

// DIR/additional_chat_templates/NAME.jinja, by name.
std::map<std::string, std::string> AdditionalFiles(const std::string& dir) {
  std::map<std::string, std::string> out;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(dir + "/additional_chat_templates", error)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() == ".jinja" && out.size() < kMaxTemplates) {
      out[path.stem().string()] = path.string();
    }
  }
  return out;
}

// chat_template of a file: a string, or a list of named templates. False if it is neither.
bool ReadNamed(const json& value, std::map<std::string, std::string>* out) {
  if (value.is_string()) {
    (*out)[kDefault] = value.get<std::string>();
    return true;
  }
  if (!value.is_array() || value.size() > kMaxTemplates) return false;
  for (const json& named : value) {
    const bool valid = named.is_object() && named.contains("name") &&
                       named.at("name").is_string() && named.contains("template") &&
                       named.at("template").is_string();
    if (!valid) return false;
    (*out)[named.at("name").get<std::string>()] = named.at("template").get<std::string>();
  }
  return true;
}

}  // namespace

void ChatTemplates::Add(const std::string& name, const std::string& source, const std::string& path,
                        const TemplateVariables& constants) {
  absl::StatusOr<std::unique_ptr<const ChatTemplate>> parsed =
      ChatTemplate::Parse(source, constants);
  Entry entry;
  entry.file = path;
  if (parsed.ok()) {
    entry.parsed = *std::move(parsed);
    entry.source = source;
  } else {
    entry.reason = absl::StrCat(path, ": ", parsed.status().message());
  }
  templates_[name] = std::move(entry);
}

absl::StatusOr<ChatTemplates> ChatTemplates::Of(const std::string& source,
                                                TemplateVariables constants) {
  ChatTemplates out;
  ASSIGN_OR_RETURN(auto parsed, ChatTemplate::Parse(source, std::move(constants)));
  out.templates_[kDefault] = {std::move(parsed), "", "", source};
  return out;
}

ChatTemplates ChatTemplates::Load(const std::string& dir) {
  ChatTemplates out;
  const auto refuse = [&out](const std::string& name, const std::string& path,
                             const std::string& reason) {
    out.templates_[name] = {.parsed = nullptr, .file = path, .reason = reason, .source = ""};
  };
  const std::string config_path = dir + "/tokenizer_config.json";
  const absl::StatusOr<json> config = ReadConfig(config_path);
  if (!config.ok()) {
    refuse(kDefault, config_path, std::string(config.status().message()));
    return out;
  }
  const TemplateVariables tokens = SpecialTokens(*config);
  const auto add_file = [&](const std::string& name, const std::string& path) {
    const absl::StatusOr<std::string> source = ReadFile(path);
    if (source.ok()) {
      out.Add(name, *source, path, tokens);
    } else if (!absl::IsNotFound(source.status())) {
      refuse(name, path, std::string(source.status().message()));
    }
  };
  add_file(kDefault, dir + "/chat_template.jinja");
  for (const auto& [name, path] : AdditionalFiles(dir)) add_file(name, path);
  // Files of processors have the same member.
  const std::string processor_path = dir + "/chat_template.json";
  for (const std::string& path : {config_path, processor_path}) {
    if (!out.empty()) break;
    const absl::StatusOr<json> file = ReadConfig(path);
    if (!file.ok() || !file->contains("chat_template") || file->at("chat_template").is_null()) {
      continue;
    }
    std::map<std::string, std::string> sources;
    if (!ReadNamed(file->at("chat_template"), &sources)) {
      refuse(kDefault, path, path + kNoTemplates);
      continue;
    }
    for (const auto& [name, source] : sources) out.Add(name, source, path, tokens);
  }
  return out;
}

absl::StatusOr<ChatTemplates> ChatTemplates::LoadFile(const std::string& file,
                                                      const std::string& dir) {
  ASSIGN_OR_RETURN(const std::string source, ReadFile(file));
  ASSIGN_OR_RETURN(const json config, ReadConfig(dir + "/tokenizer_config.json"));
  absl::StatusOr<ChatTemplates> out = Of(source, SpecialTokens(config));
  if (!out.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", out.status().message()));
  }
  out->templates_[kDefault].file = file;
  return out;
}

absl::StatusOr<ChatTemplates> ChatTemplates::LoadEither(const std::string& file,
                                                        const std::string& dir) {
  return file.empty() ? Load(dir) : LoadFile(file, dir);
}

absl::StatusOr<const ChatTemplate*> ChatTemplates::Choose(const std::string& name,
                                                          bool has_tools) const {
  if (templates_.empty()) {
    return absl::FailedPreconditionError("the model has no chat template");
  }
  const bool tool_use = name.empty() && has_tools && templates_.contains(kToolUse);
  const std::string chosen = !name.empty() ? name : tool_use ? kToolUse : kDefault;
  const auto at = templates_.find(chosen);
  if (at == templates_.end()) {
    const std::string known = absl::StrJoin(
        templates_, ", ", [](std::string* out, const auto& entry) { *out += entry.first; });
    return absl::NotFoundError(
        absl::StrCat("the model has no chat template '", chosen, "', only: ", known));
  }
  if (at->second.parsed == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model's chat template is refused: ", at->second.reason));
  }
  return at->second.parsed.get();
}

std::vector<ChatTemplates::Origin> ChatTemplates::List() const {
  std::vector<Origin> out;
  for (const auto& [name, entry] : templates_) out.push_back({name, entry.file, entry.reason});
  return out;
}

bool ChatTemplates::Mention(std::string_view text) const {
  return std::ranges::any_of(templates_, [text](const auto& named) {
    return named.second.source.find(text) != std::string::npos;
  });
}

absl::Status ChatTemplates::Check() const {
  for (const auto& [name, entry] : templates_) {
    if (entry.parsed == nullptr) return absl::InvalidArgumentError(entry.reason);
  }
  const auto at = templates_.find(kDefault);
  return at == templates_.end() ? absl::OkStatus() : at->second.parsed->Try();
}

}  // namespace quire

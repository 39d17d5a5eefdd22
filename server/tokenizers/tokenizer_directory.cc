// Looks for the files in order of how exactly they say what the model was trained with.
#include "server/tokenizers/tokenizer_directory.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/tokenizers/sentencepiece_file.h"
#include "server/tokenizers/tekken_file.h"
#include "server/tokenizers/text_frame.h"

namespace quire {
namespace {

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

absl::StatusOr<nlohmann::json> ReadObjectIfThere(const std::string& path) {
  if (!Exists(path)) return nlohmann::json::object();
  ASSIGN_OR_RETURN(nlohmann::json root, ReadJsonFile(path));
  if (!root.is_object())
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not an object"));
  return root;
}

// Whether `value` of a configuration is the text of `token`, or has it as content.
bool Names(const nlohmann::json& value, const std::string& token) {
  if (value.is_string()) return value == token;
  return value.is_object() && value.contains("content") && value["content"] == token;
}

// Whether `config` has `token` among its special ones.
bool NamesSpecial(const nlohmann::json& config, const std::string& token) {
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_token") && Names(value, token)) return true;
    if (key != "additional_special_tokens" || !value.is_array()) continue;
    const auto names = [&](const nlohmann::json& item) { return Names(item, token); };
    if (std::ranges::any_of(value, names)) return true;
  }
  return false;
}

// tokenizer_config.json, with the tokens of added_tokens.json: older directories list them there,
// and the special ones among them in special_tokens_map.json.
absl::StatusOr<nlohmann::json> ReadConfig(const std::string& directory) {
  ASSIGN_OR_RETURN(nlohmann::json config, ReadObjectIfThere(directory + "/tokenizer_config.json"));
  if (config.contains("added_tokens_decoder")) return config;
  const std::string path = directory + "/added_tokens.json";
  ASSIGN_OR_RETURN(const nlohmann::json added, ReadObjectIfThere(path));
  ASSIGN_OR_RETURN(const nlohmann::json special,
                   ReadObjectIfThere(directory + "/special_tokens_map.json"));
  nlohmann::json tokens = nlohmann::json::object();
  for (const auto& [content, id] : added.items()) {
    if (!id.is_number_unsigned() || content.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is not texts of tokens and their ids"));
    }
    const bool is_special = NamesSpecial(config, content) || NamesSpecial(special, content);
    tokens[absl::StrCat(id.get<uint64_t>())] = {
        {"content", content}, {"special", is_special}, {"normalized", false}};
  }
  config["added_tokens_decoder"] = std::move(tokens);
  return config;
}

// Of a tokenizer.json. Directories without added_tokens_decoder are older: there the special tokens
// of special_tokens_map.json go before those of tokenizer_config.json.
absl::Status SetFrame(const std::string& directory, TokenizerFile* file) {
  const std::string path = directory + "/tokenizer_config.json";
  ASSIGN_OR_RETURN(nlohmann::json config, ReadObjectIfThere(path));
  if (!config.contains("added_tokens_decoder")) {
    ASSIGN_OR_RETURN(const nlohmann::json special,
                     ReadObjectIfThere(directory + "/special_tokens_map.json"));
    for (const char* key : {"bos_token", "eos_token"}) {
      if (special.contains(key)) config[key] = special[key];
    }
  }
  return FrameAsConfigured({config, path}, file);
}

}  // namespace

absl::StatusOr<TokenizerSource> ReadTokenizerSource(const std::string& directory) {
  TokenizerSource source{.path = directory + "/tokenizer.json"};
  if (Exists(source.path)) {
    ASSIGN_OR_RETURN(source.file, ReadTokenizerFile(source.path));
    RETURN_IF_ERROR(SetFrame(directory, &source.file));
    return source;
  }
  source.path = directory + "/tokenizer.model";
  if (Exists(source.path)) {
    ASSIGN_OR_RETURN(const nlohmann::json config, ReadConfig(directory));
    ASSIGN_OR_RETURN(source.file, ReadSentencePieceFile(source.path, config));
    return source;
  }
  source.path = directory + "/tekken.json";
  if (Exists(source.path)) {
    ASSIGN_OR_RETURN(source.file, ReadTekkenFile(source.path));
    return source;
  }
  return absl::NotFoundError(
      absl::StrCat(directory,
                   ": has no tokenizer: no tokenizer.json, tokenizer.model or "
                   "tekken.json; name a directory that has one with --tokenizer, or "
                   "serve token ids only with --skip-tokenizer-init"));
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const std::string& directory) {
  ASSIGN_OR_RETURN(const TokenizerSource source, ReadTokenizerSource(directory));
  return Tokenizer::Make(source.file, source.path);
}

}  // namespace quire

// Says add_bos_token and add_eos_token in the words of tokenizer.json.
#include "server/tokenizers/text_frame.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

using nlohmann::json;

// The classes of transformers 4 that make the post-processor from the two keys, and their tokens
// where tokenizer_config.json names none. Others take it from tokenizer.json whatever the keys say.
struct FramingClass {
  std::string_view name;  // also with "Fast" behind it
  const char* bos;
  const char* eos;
};
constexpr FramingClass kFramingClasses[] = {
    {"LlamaTokenizer", "<s>", "</s>"},
    {"GemmaTokenizer", "<bos>", "<eos>"},
    {"CohereTokenizer", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"},
};

const FramingClass* FindClass(const JsonNode& config) {
  if (!config.Has("tokenizer_class") || !config.value.at("tokenizer_class").is_string()) {
    return nullptr;
  }
  std::string_view name = config.value.at("tokenizer_class").get_ref<const std::string&>();
  if (name.ends_with("Fast")) name.remove_suffix(4);
  const auto* const found = std::ranges::find(kFramingClasses, name, &FramingClass::name);
  return found == std::end(kFramingClasses) ? nullptr : found;
}

// "<s>", or an object with it as content.
absl::StatusOr<std::string> ContentOf(const JsonNode& config, const char* key,
                                      const char* otherwise) {
  if (!config.value.contains(key)) return otherwise;
  const JsonNode token = config.At(key);
  if (token.value.is_string()) return token.value.get<std::string>();
  if (token.value.is_object()) return ReadString(token, "content");
  return Refuse(token, "is not a token");
}

absl::StatusOr<FrameToken> FindToken(const JsonNode& config, const char* key, const char* otherwise,
                                     const TokenizerFile& file) {
  ASSIGN_OR_RETURN(std::string content, ContentOf(config, key, otherwise));
  const JsonNode parts{file.parts, ""};
  if (parts.Has("added_tokens")) {
    ASSIGN_OR_RETURN(const std::vector<AddedToken> added,
                     ReadAddedTokens(parts.At("added_tokens")));
    const auto found = std::ranges::find(added, content, &AddedToken::content);
    if (found != added.end()) return FrameToken{std::move(content), found->id};
  }
  for (const auto& [written, id] : file.model.vocabulary) {
    if (written == content) return FrameToken{std::move(content), id};
  }
  return Refuse(config, absl::StrCat(key, ": tokenizer.json has no token \"", content.substr(0, 80),
                                     "\", which is to stand around each text"));
}

}  // namespace

json FrameProcessor(const std::optional<FrameToken>& before,
                    const std::optional<FrameToken>& behind) {
  json single = json::array(), tokens = json::object();
  const auto add = [&](const std::optional<FrameToken>& token) {
    if (!token.has_value()) return;
    const std::string& name = token->content;
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", {token->id}}, {"tokens", {name}}};
  };
  add(before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(behind);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"special_tokens", std::move(tokens)}};
}

absl::Status FrameAsConfigured(const JsonNode& config, TokenizerFile* file) {
  const FramingClass* const framing = FindClass(config);
  if (framing == nullptr) return absl::OkStatus();
  if (!config.Has("add_bos_token") && !config.Has("add_eos_token")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool add_bos, ReadBool(config, "add_bos_token", true));
  ASSIGN_OR_RETURN(const bool add_eos, ReadBool(config, "add_eos_token", false));
  std::optional<FrameToken> bos, eos;
  if (add_bos) {
    ASSIGN_OR_RETURN(bos, FindToken(config, "bos_token", framing->bos, *file));
  }
  if (add_eos) {
    ASSIGN_OR_RETURN(eos, FindToken(config, "eos_token", framing->eos, *file));
  }
  file->parts["post_processor"] = FrameProcessor(bos, eos);
  return absl::OkStatus();
}

}  // namespace quire

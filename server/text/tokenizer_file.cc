// Reads tokenizer.json and refuses members that are not listed here.
#include "server/text/tokenizer_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

constexpr size_t kMaxAddedTokenBytes = 1024;

absl::Status ReadRoot(const JsonNode& root, TokenizerFile* file) {
  RETURN_IF_ERROR(CheckKeys(root, {"version", "truncation", "padding", "added_tokens", "normalizer",
                                   "pre_tokenizer", "post_processor", "decoder", "model"}));
  for (const char* key : {"model", "decoder"}) {
    if (!root.Has(key)) return Refuse(root, absl::StrCat("'", key, "' is missing or null"));
  }
  ASSIGN_OR_RETURN(file->model, ReadModelSpec(root.At("model")));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const JsonNode& list) {
  if (!list.value.is_array()) return Refuse(list, "is not a list");
  std::vector<AddedToken> tokens;
  for (size_t i = 0; i < list.value.size(); ++i) {
    const JsonNode node = list.At(i);
    RETURN_IF_ERROR(CheckKeys(
        node, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
    AddedToken token;
    if (!node.Has("id")) return Refuse(node, "'id' is missing");
    ASSIGN_OR_RETURN(token.id, ReadId(node.At("id")));
    ASSIGN_OR_RETURN(token.content, ReadString(node, "content"));
    ASSIGN_OR_RETURN(token.single_word, ReadBool(node, "single_word", false));
    ASSIGN_OR_RETURN(token.lstrip, ReadBool(node, "lstrip", false));
    ASSIGN_OR_RETURN(token.rstrip, ReadBool(node, "rstrip", false));
    ASSIGN_OR_RETURN(token.special, ReadBool(node, "special", false));
    ASSIGN_OR_RETURN(token.normalized, ReadBool(node, "normalized", !token.special));
    if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) {
      return Refuse(node.At("content"),
                    absl::StrCat("is empty or longer than ", kMaxAddedTokenBytes, " bytes"));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

absl::StatusOr<TokenizerFile> ReadTokenizerFile(const std::string& path) {
  ASSIGN_OR_RETURN(nlohmann::json root, ReadJsonFile(path));
  TokenizerFile file;
  if (absl::Status status = ReadRoot({root, ""}, &file); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
  }
  const JsonNode node{root, ""};
  if (node.Has("truncation") || node.Has("padding")) {
    Log(Severity::kInfo, "truncation and padding of the tokenizer are ignored", {{"file", path}});
  }
  root.erase("model");
  file.parts = std::move(root);
  return file;
}

}  // namespace quire

// Looks for the files in order of how exactly they say what the model was trained with.
#include "server/tokenizers/tokenizer_directory.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/tokenizers/sentencepiece_file.h"
#include "server/tokenizers/tekken_file.h"

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

}  // namespace

absl::StatusOr<TokenizerSource> ReadTokenizerSource(const std::string& directory) {
  TokenizerSource source{.path = directory + "/tokenizer.json"};
  if (Exists(source.path)) {
    ASSIGN_OR_RETURN(source.file, ReadTokenizerFile(source.path));
    return source;
  }
  source.path = directory + "/tokenizer.model";
  if (Exists(source.path)) {
    ASSIGN_OR_RETURN(const nlohmann::json config,
                     ReadObjectIfThere(directory + "/tokenizer_config.json"));
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

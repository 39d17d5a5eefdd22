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

absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const std::string& directory) {
  const std::string json = directory + "/tokenizer.json";
  const std::string sentencepiece = directory + "/tokenizer.model";
  const std::string tekken = directory + "/tekken.json";
  if (Exists(json)) return Tokenizer::Load(json);
  if (Exists(sentencepiece)) {
    ASSIGN_OR_RETURN(const nlohmann::json config,
                     ReadObjectIfThere(directory + "/tokenizer_config.json"));
    ASSIGN_OR_RETURN(const TokenizerFile file, ReadSentencePieceFile(sentencepiece, config));
    return Tokenizer::Make(file, sentencepiece);
  }
  if (Exists(tekken)) {
    ASSIGN_OR_RETURN(const TokenizerFile file, ReadTekkenFile(tekken));
    return Tokenizer::Make(file, tekken);
  }
  return absl::NotFoundError(
      absl::StrCat(directory,
                   ": has no tokenizer: no tokenizer.json, tokenizer.model or "
                   "tekken.json; name a directory that has one with --tokenizer, or "
                   "serve token ids only with --skip-tokenizer-init"));
}

}  // namespace quire

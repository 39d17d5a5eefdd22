// The tables of a loaded Tokenizer: built once from a TokenizerFile, then only read. Private to
// tokenizer.cc.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/text/added_tokens.h"
#include "server/text/decode/token_texts.h"
#include "server/text/model/merge_table.h"
#include "server/text/model/token_model.h"
#include "server/text/normalize/normalizer.h"
#include "server/text/pieces/pre_tokenizer.h"
#include "server/text/post_processor.h"
#include "server/text/tokenizer.h"
#include "server/text/tokenizer_file.h"

namespace quire {

struct Tokenizer::Data {
  // By id; an id without a token has the empty text.
  std::vector<std::string> written;                     // the text in the file
  std::unordered_map<std::string_view, int32_t> id_of;  // by `written`

  NormalizerChain normalizer;
  AddedTokenMatcher raw_tokens;         // searched in the original text
  AddedTokenMatcher normalized_tokens;  // searched in the normalized text
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const TokenModel> model;
  PostProcessor post_processor;
  TokenTexts texts;

  // Reads `file`; INVALID_ARGUMENT names the place of the first unsupported part.
  absl::Status Build(const TokenizerFile& file);

 private:
  absl::Status AddToken(const std::string& token, int32_t id);
  absl::Status BuildVocabulary(const ModelSpec& model, const std::vector<AddedToken>& added);
  absl::StatusOr<std::vector<MergeTable::Merge>> ResolveMerges(const ModelSpec& model) const;
  // Of the vocabulary; -1: the model has no unknown token.
  absl::StatusOr<int32_t> UnknownId(const ModelSpec& model) const;
  absl::Status BuildBytePairs(const ModelSpec& model);
  absl::Status BuildCharPairs(const ModelSpec& model);
  absl::Status BuildUnigram(const ModelSpec& model);
  absl::Status BuildModel(const ModelSpec& model);
  absl::Status BuildAddedTokens(const std::vector<AddedToken>& added);
  absl::Status CheckFrame() const;

  std::vector<std::string> bytes_;  // by id: of byte-level tokens, for the model
  // Added tokens that are searched in the normalized text: as the package decodes them.
  std::unordered_map<int32_t, std::string> normalized_contents_;
};

}  // namespace quire

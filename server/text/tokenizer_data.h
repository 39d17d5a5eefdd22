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
#include "server/text/byte_pairs.h"
#include "server/text/piece_splitter.h"
#include "server/text/tokenizer.h"
#include "server/text/tokenizer_file.h"

namespace quire {

struct Tokenizer::Data {
  // By id; an id without a token has the empty text.
  std::vector<std::string> written;  // the text in the file
  std::vector<std::string> bytes;    // the decoded bytes
  std::vector<bool> special;
  std::unordered_map<std::string_view, int32_t> id_of;  // by `written`

  std::unique_ptr<const BytePairs> byte_pairs;
  std::vector<std::unique_ptr<const PieceSplitter>> splitters;
  AddedTokenMatcher raw_tokens;         // searched in the original text
  AddedTokenMatcher normalized_tokens;  // searched in the normalized text
  bool nfc = false;
  bool add_prefix_space = false;
  bool trim_offsets = false;
  bool trim_keeps_prefix_space = false;
  std::vector<int32_t> ids_before, ids_after;

  absl::Status Build(const TokenizerFile& file);

 private:
  absl::Status AddToken(const std::string& token, int32_t id);
  absl::Status BuildVocabulary(const TokenizerFile& file);
  absl::StatusOr<BytePairs::Merge> ResolveMerge(const TokenizerFile& file, size_t index) const;
  absl::Status BuildBytePairs(const TokenizerFile& file);
  absl::Status BuildAddedTokens(const TokenizerFile& file);
  absl::Status BuildSplitters(const TokenizerFile& file);
};

}  // namespace quire

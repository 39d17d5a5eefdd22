// CharPairs: a BPE model over characters, as SentencePiece trains them: a piece of text is its code
// points, merged pair by pair. Code points without a token become the tokens of their bytes, or the
// unknown token.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/model/char_ids.h"
#include "server/text/model/merge_table.h"
#include "server/text/model/piece_table.h"
#include "server/text/model/token_model.h"
#include "server/text/model/word_breaks.h"
#include "server/text/model/word_cache.h"

namespace quire {

class CharPairs final : public TokenModel {
 public:
  struct Parts {
    // By id: the token's text, "" for ids without a token. The views outlive the model.
    std::vector<std::string_view> tokens;
    std::vector<MergeTable::Merge> merges;
    // Stands for code points without a token; without it they are left out.
    std::optional<int32_t> unknown;
    bool fuse_unknown = false;   // unknown code points in a row are one token
    bool byte_fallback = false;  // a code point without a token is its bytes, tokens such as <0xE2>
    // A piece that equals a token is that token, regardless of the merges.
    bool ignore_merges = false;
  };
  // INVALID_ARGUMENT if a merge takes or makes the unknown token or one that stands for a byte.
  static absl::StatusOr<std::unique_ptr<const CharPairs>> Make(Parts parts);

  void Encode(std::string_view text, std::span<const Span> pieces, std::vector<int32_t>* ids,
              std::vector<Span>* spans) const override;

 private:
  // The symbols of one word, and buffers for them.
  struct Word {
    std::vector<int32_t> symbols;
    std::vector<uint32_t> unknown_sizes;  // bytes of each unknown token, in order
    std::vector<uint32_t> ranks;
  };

  explicit CharPairs(Parts parts);
  void RankAsciiPairs();
  void EncodeWord(std::string_view word, Word* work) const;
  bool AddBytes(std::string_view character, Word* work) const;
  void RankPairs(std::string_view word, Word* work) const;
  // The ids of one word, in `work`.
  std::span<const int32_t> FindWord(std::string_view word, Word* work) const;
  // Adds the bytes of a word's `ids`. `unknown_sizes` are those of the unknown tokens among them.
  void AddSpans(uint32_t begin, std::span<const int32_t> ids,
                std::span<const uint32_t> unknown_sizes, std::vector<Span>* spans) const;

  const Parts parts_;
  const MergeTable merges_;
  const CharIds char_ids_;
  const WordBreaks breaks_;
  std::array<int32_t, 256> byte_ids_;  // -1: no token
  std::vector<bool> is_byte_;          // by id
  // Of the pairs that most text begins with: [left * 128 + right] of ASCII characters.
  std::vector<uint32_t> ascii_ranks_;

  PieceTable words_;   // words whose merges end in one token
  PieceTable tokens_;  // all tokens, for ignore_merges
  const uint64_t cache_model_ = WordCache::NewModel();
};

}  // namespace quire

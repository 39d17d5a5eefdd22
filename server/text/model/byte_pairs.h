// BytePairs: a byte-level BPE model: a piece of text is its bytes, merged pair by pair. Some
// published vocabularies lack tokens of bytes that their training text did not have.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "server/text/model/merge_table.h"
#include "server/text/model/piece_table.h"
#include "server/text/model/token_model.h"

namespace quire {

class BytePairs final : public TokenModel {
 public:
  struct Options {
    // A piece that equals a token becomes that token, regardless of the merges.
    bool ignore_merges = false;
    // Stands for a byte without a token; -1: such a byte is left out, as `tokenizers` does.
    int32_t unknown = -1;
    bool fuse_unknown = false;  // one stands for neighbours together
  };
  // `tokens[id]` are the bytes of a token, distinct, or "" for an id that no text becomes. The
  // views must outlive this.
  BytePairs(std::vector<std::string_view> tokens, const std::vector<MergeTable::Merge>& merges,
            const Options& options);

  void Encode(std::string_view text, std::span<const Span> pieces, std::vector<int32_t>* ids,
              std::vector<Span>* spans) const override;
  // Appends the ids of one piece.
  void EncodePiece(std::string_view piece, std::vector<int32_t>* ids) const;

 private:
  void MergeShort(std::string_view piece, std::vector<int32_t>* ids) const;
  void MergeLong(std::string_view piece, std::vector<int32_t>* ids) const;
  // Whether no token is the byte `text[at]`; false behind the end.
  bool Lacks(std::string_view text, size_t at) const;
  bool LacksAny(std::string_view piece) const;
  // Where the bytes of `piece` end that are `id`, the next of its tokens; `begin` moves over bytes
  // that are left out.
  uint32_t EndOf(int32_t id, std::string_view piece, uint32_t* begin) const;

  const Options options_;
  const std::vector<std::string_view> tokens_;
  std::array<int32_t, 256> byte_ids_;  // -1: no token
  bool lacks_bytes_ = false;
  const MergeTable merges_;
  std::vector<uint32_t> byte_ranks_;  // [left byte * 256 + right byte]
  PieceTable pieces_;                 // that become one token
};

}  // namespace quire

// BytePairs: a byte-level BPE model: a piece of text is its bytes, merged pair by pair.
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
  // `tokens[id]` are the bytes of a token that a merge can produce, "" for other ids. They and the
  // 256 single bytes must be distinct; the views must outlive this. With `ignore_merges` a piece
  // that equals a token becomes that token, regardless of the merges.
  BytePairs(std::vector<std::string_view> tokens, const std::vector<MergeTable::Merge>& merges,
            bool ignore_merges);

  void Encode(std::string_view text, std::span<const Span> pieces, std::vector<int32_t>* ids,
              std::vector<Span>* spans) const override;
  // Appends the ids of one piece.
  void EncodePiece(std::string_view piece, std::vector<int32_t>* ids) const;

 private:
  void MergeShort(std::string_view piece, std::vector<int32_t>* ids) const;
  void MergeLong(std::string_view piece, std::vector<int32_t>* ids) const;

  const std::vector<std::string_view> tokens_;
  std::array<int32_t, 256> byte_ids_;
  const MergeTable merges_;
  std::vector<uint32_t> byte_ranks_;  // [left byte * 256 + right byte]
  PieceTable pieces_;                 // that become one token
};

}  // namespace quire

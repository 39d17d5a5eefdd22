// Looks pieces up whole, and merges the bytes of the others.
#include "server/text/model/byte_pairs.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"

namespace quire {

BytePairs::BytePairs(std::vector<std::string_view> tokens,
                     const std::vector<MergeTable::Merge>& merges, bool ignore_merges)
    : tokens_(std::move(tokens)), merges_(merges), pieces_(tokens_.size()) {
  byte_ids_.fill(-1);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].size() == 1) {
      byte_ids_[static_cast<uint8_t>(tokens_[id][0])] = static_cast<int32_t>(id);
    }
  }
  CHECK(std::ranges::find(byte_ids_, -1) == byte_ids_.end());
  byte_ranks_.resize(256 * 256);
  for (size_t pair = 0; pair < byte_ranks_.size(); ++pair) {
    byte_ranks_[pair] = merges_.RankOf(byte_ids_[pair >> 8], byte_ids_[pair & 0xFF]);
  }
  // Skips a token that its bytes' merges do not produce. The table filled so far does not change
  // the answer.
  std::vector<int32_t> ids;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    ids.clear();
    if (!ignore_merges) EncodePiece(tokens_[id], &ids);
    if (ignore_merges || (ids.size() == 1 && ids[0] == static_cast<int32_t>(id))) {
      pieces_.Add(tokens_[id], static_cast<int32_t>(id));
    }
  }
}

void BytePairs::Encode(std::string_view text, std::span<const Span> pieces,
                       std::vector<int32_t>* ids, std::vector<Span>* spans) const {
  for (const Span& piece : pieces) {
    const size_t had = ids->size();
    EncodePiece(text.substr(piece.begin, piece.end - piece.begin), ids);
    if (spans == nullptr) continue;
    uint32_t begin = piece.begin;
    for (size_t i = had; i < ids->size(); ++i) {
      const uint32_t end = begin + static_cast<uint32_t>(tokens_[(*ids)[i]].size());
      spans->push_back({begin, end});
      begin = end;
    }
  }
}

void BytePairs::EncodePiece(std::string_view piece, std::vector<int32_t>* ids) const {
  if (const int32_t id = pieces_.Find(piece); id >= 0) {
    ids->push_back(id);
  } else if (piece.size() <= MergeTable::kMaxShort) {
    MergeShort(piece, ids);
  } else {
    MergeLong(piece, ids);
  }
}

void BytePairs::MergeShort(std::string_view piece, std::vector<int32_t>* ids) const {
  int32_t symbols[MergeTable::kMaxShort];
  uint32_t ranks[MergeTable::kMaxShort];
  for (size_t i = 0; i < piece.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(piece[i]);
    symbols[i] = byte_ids_[byte];
    ranks[i] = i + 1 < piece.size() ? byte_ranks_[byte << 8 | static_cast<uint8_t>(piece[i + 1])]
                                    : MergeTable::kNoRank;
  }
  const size_t count = merges_.MergeShort(symbols, ranks, piece.size());
  ids->insert(ids->end(), symbols, symbols + count);
}

void BytePairs::MergeLong(std::string_view piece, std::vector<int32_t>* ids) const {
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  for (const char byte : piece) symbols.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
  merges_.MergeLong(&symbols);
  ids->insert(ids->end(), symbols.begin(), symbols.end());
}

}  // namespace quire

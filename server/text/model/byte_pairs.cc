// Looks pieces up whole, and merges the bytes of the others.
#include "server/text/model/byte_pairs.h"

#include <algorithm>
#include <utility>

namespace quire {

BytePairs::BytePairs(std::vector<std::string_view> tokens,
                     const std::vector<MergeTable::Merge>& merges, const Options& options)
    : options_(options), tokens_(std::move(tokens)), merges_(merges), pieces_(tokens_.size()) {
  byte_ids_.fill(-1);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].size() == 1) {
      byte_ids_[static_cast<uint8_t>(tokens_[id][0])] = static_cast<int32_t>(id);
    }
  }
  lacks_bytes_ = std::ranges::find(byte_ids_, -1) != byte_ids_.end();
  byte_ranks_.resize(256 * 256, MergeTable::kNoRank);
  for (size_t pair = 0; pair < byte_ranks_.size(); ++pair) {
    const int32_t left = byte_ids_[pair >> 8], right = byte_ids_[pair & 0xFF];
    if (left >= 0 && right >= 0) byte_ranks_[pair] = merges_.RankOf(left, right);
  }
  // Skips a token that its bytes' merges do not produce. The table filled so far does not change
  // the answer.
  std::vector<int32_t> ids;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    ids.clear();
    if (!options_.ignore_merges) EncodePiece(tokens_[id], &ids);
    if (options_.ignore_merges || (ids.size() == 1 && ids[0] == static_cast<int32_t>(id))) {
      pieces_.Add(tokens_[id], static_cast<int32_t>(id));
    }
  }
}

void BytePairs::Encode(std::string_view text, std::span<const Span> pieces,
                       std::vector<int32_t>* ids, std::vector<Span>* spans) const {
  for (const Span& piece : pieces) {
    const size_t had = ids->size();
    const std::string_view bytes = text.substr(piece.begin, piece.end - piece.begin);
    EncodePiece(bytes, ids);
    if (spans == nullptr) continue;
    uint32_t begin = 0;
    for (size_t i = had; i < ids->size(); ++i) {
      const uint32_t end = EndOf((*ids)[i], bytes, &begin);
      spans->push_back({piece.begin + begin, piece.begin + end});
      begin = end;
    }
  }
}

void BytePairs::EncodePiece(std::string_view piece, std::vector<int32_t>* ids) const {
  if (const int32_t id = pieces_.Find(piece); id >= 0) {
    ids->push_back(id);
  } else if (piece.size() <= MergeTable::kMaxShort && !LacksAny(piece)) {
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
  for (size_t at = 0; at < piece.size(); ++at) {
    if (!Lacks(piece, at)) {
      symbols.push_back(byte_ids_[static_cast<uint8_t>(piece[at])]);
    } else if (options_.unknown >= 0) {
      const bool fused = options_.fuse_unknown && at > 0 && Lacks(piece, at - 1);
      if (!fused) symbols.push_back(options_.unknown);
    }
  }
  merges_.MergeLong(&symbols);
  ids->insert(ids->end(), symbols.begin(), symbols.end());
}

bool BytePairs::Lacks(std::string_view text, size_t at) const {
  return at < text.size() && byte_ids_[static_cast<uint8_t>(text[at])] < 0;
}

bool BytePairs::LacksAny(std::string_view piece) const {
  if (!lacks_bytes_) return false;
  return std::ranges::any_of(piece,
                             [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)] < 0; });
}

uint32_t BytePairs::EndOf(int32_t id, std::string_view piece, uint32_t* begin) const {
  if (!lacks_bytes_) return *begin + static_cast<uint32_t>(tokens_[id].size());
  uint32_t end = *begin;
  if (id == options_.unknown && Lacks(piece, end)) {
    do {
      ++end;
    } while (options_.fuse_unknown && Lacks(piece, end));
    return end;
  }
  while (Lacks(piece, end)) ++end;
  *begin = end;
  // A token that is the whole piece may have bytes that are none alone.
  const bool whole = piece == tokens_[id];
  for (size_t left = tokens_[id].size(); left > 0 && end < piece.size(); ++end) {
    if (whole || !Lacks(piece, end)) --left;
  }
  return end;
}

}  // namespace quire

// BytePairs: the vocabulary and merges of a byte-level BPE model; turns one piece of text into ids.
// Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace quire {

class BytePairs {
 public:
  struct Merge {
    int32_t left, right, result;
  };
  // `tokens[id]` are the bytes of a token that a merge can produce, "" for other ids. They and the
  // 256 single bytes must be distinct; the views must outlive this. A pair listed twice in `merges`
  // has the rank of the last. With `ignore_merges` a piece that equals a token becomes that token,
  // regardless of the merges.
  BytePairs(std::vector<std::string_view> tokens, const std::vector<Merge>& merges,
            bool ignore_merges);

  // Appends the ids of `piece`: its bytes, merged pair by pair in order of rank, leftmost first.
  // Linear in the piece.
  void Encode(std::string_view piece, std::vector<int32_t>* ids) const;
  size_t TokenSize(int32_t id) const { return tokens_[id].size(); }

 private:
  // Tokens of up to 15 bytes are compared as two words: the bytes, zero padded, and the length.
  struct ShortKey {
    uint64_t low = 0, high = 0;
    bool operator==(const ShortKey&) const = default;
  };
  struct ShortSlot {
    ShortKey key;
    int32_t id = -1;
  };
  struct MergeSlot {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = 0;
    int32_t result = 0;
  };
  static constexpr size_t kMaxShort = 15;
  static constexpr uint32_t kNoRank = UINT32_MAX;

  static ShortKey KeyOf(std::string_view piece);
  size_t SlotOf(const ShortKey& key) const;
  size_t SlotOf(uint64_t pair) const;
  void AddMerges(const std::vector<Merge>& merges);
  void AddPiece(int32_t id);
  int32_t FindPiece(std::string_view piece) const;  // -1: none
  uint32_t RankOf(int32_t left, int32_t right) const;
  void MergeShort(std::string_view piece, std::vector<int32_t>* ids) const;
  void MergeLong(std::string_view piece, std::vector<int32_t>* ids) const;

  const std::vector<std::string_view> tokens_;
  std::array<int32_t, 256> byte_ids_;
  std::vector<uint32_t> byte_ranks_;  // [left byte * 256 + right byte]
  std::vector<int32_t> results_;      // by rank
  std::vector<MergeSlot> merges_;     // open addressing
  int merge_shift_ = 0;
  // Pieces that become one token.
  std::vector<ShortSlot> short_pieces_;  // open addressing
  int short_shift_ = 0;
  std::unordered_map<std::string_view, int32_t> long_pieces_;
  size_t max_piece_ = 0;
};

}  // namespace quire

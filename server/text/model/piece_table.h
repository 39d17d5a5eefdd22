// PieceTable: the pieces of text that become one token, by their bytes. Filled once, then only
// read; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/text/model/huge_pages.h"

namespace quire {

class PieceTable {
 public:
  // Has room for `max_pieces` pieces.
  explicit PieceTable(size_t max_pieces);
  // `piece` is not empty, not in the table, and outlives it. `id` is at least 0.
  void Add(std::string_view piece, int32_t id);
  // The id of `piece`, -1 if none.
  int32_t Find(std::string_view piece) const;

 private:
  // Pieces of up to 15 bytes are compared as two words: the bytes, zero padded, and the length.
  struct ShortKey {
    uint64_t low = 0, high = 0;
    bool operator==(const ShortKey&) const = default;
  };
  struct ShortSlot {
    ShortKey key;
    int32_t id = -1;
  };
  static constexpr size_t kMaxShort = 15;

  static ShortKey KeyOf(std::string_view piece);
  size_t SlotOf(const ShortKey& key) const;

  std::vector<ShortSlot, HugePages<ShortSlot>> short_pieces_;  // open addressing
  int shift_ = 0;
  std::unordered_map<std::string_view, int32_t> long_pieces_;
  size_t max_piece_ = 0;  // bytes
};

}  // namespace quire

// A hash table for short pieces, which are nearly all, and one for the others.
#include "server/text/model/piece_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace quire {

// At most half of the slots get used; the index is the top bits of a 64-bit product.
PieceTable::PieceTable(size_t max_pieces)
    : shift_(64 - std::bit_width(std::max<size_t>(max_pieces, 8) * 2 - 1)) {
  short_pieces_.resize(size_t{1} << (64 - shift_));
}

PieceTable::ShortKey PieceTable::KeyOf(std::string_view piece) {
  const size_t n = piece.size();
  const char* const p = piece.data();
  ShortKey key;
  if (n > 8) {
    uint64_t tail;
    std::memcpy(&key.low, p, 8);
    std::memcpy(&tail, p + n - 8, 8);
    key.high = tail >> (8 * (16 - n));
  } else if (n == 8) {
    std::memcpy(&key.low, p, 8);
  } else if (n >= 4) {
    uint32_t head, tail;
    std::memcpy(&head, p, 4);
    std::memcpy(&tail, p + n - 4, 4);
    key.low = head | uint64_t{tail} << (8 * (n - 4));
  } else {
    for (size_t i = 0; i < n; ++i) key.low |= uint64_t{static_cast<uint8_t>(p[i])} << (8 * i);
  }
  key.high |= uint64_t{n} << 56;
  return key;
}

size_t PieceTable::SlotOf(const ShortKey& key) const {
  const size_t mask = short_pieces_.size() - 1;
  uint64_t mixed = (key.low ^ std::rotl(key.high, 32) * 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ mixed >> 32) * 0x9E3779B97F4A7C15u;
  size_t slot = mixed >> shift_;
  while (short_pieces_[slot].id >= 0 && short_pieces_[slot].key != key) slot = (slot + 1) & mask;
  return slot;
}

void PieceTable::Add(std::string_view piece, int32_t id) {
  max_piece_ = std::max(max_piece_, piece.size());
  if (piece.size() > kMaxShort) {
    long_pieces_.emplace(piece, id);
    return;
  }
  const ShortKey key = KeyOf(piece);
  short_pieces_[SlotOf(key)] = {key, id};
}

int32_t PieceTable::Find(std::string_view piece) const {
  if (piece.size() <= kMaxShort) return short_pieces_[SlotOf(KeyOf(piece))].id;
  if (piece.size() > max_piece_) return -1;
  const auto at = long_pieces_.find(piece);
  return at == long_pieces_.end() ? -1 : at->second;
}

}  // namespace quire

// Merges byte pairs: a scan over a small array for words, buckets by rank for long pieces.
#include "server/text/byte_pairs.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <queue>

#include "kernels/check.h"

namespace quire {
namespace {

// Up to this size the quadratic scan is faster than a queue.
constexpr size_t kMaxShortMerge = 64;

// Pairs to be merged: lowest rank first, leftmost first within a rank. Ranks repeat often in a long
// piece and positions mostly arrive in order, so with a bucket per rank both operations are cheap.
class PairQueue {
 public:
  bool empty() const { return ranks_.empty(); }
  void Push(uint32_t rank, uint32_t position) {
    Recent& recent = recent_[rank % kRecent];
    if (recent.bucket == nullptr || recent.rank != rank) {
      auto [at, inserted] = buckets_.try_emplace(rank);
      if (inserted) ranks_.push(rank);
      recent = {rank, &at->second};
    }
    recent.bucket->Push(position);
  }
  std::pair<uint32_t, uint32_t> Pop() {
    const uint32_t rank = ranks_.top();
    Recent& recent = recent_[rank % kRecent];
    if (recent.bucket == nullptr || recent.rank != rank) recent = {rank, &buckets_.at(rank)};
    const uint32_t position = recent.bucket->Pop();
    if (recent.bucket->empty()) {
      recent.bucket = nullptr;
      buckets_.erase(rank);
      ranks_.pop();
    }
    return {rank, position};
  }

 private:
  class Bucket {
   public:
    bool empty() const { return head_ == positions_.size(); }
    void Push(uint32_t position) {
      if (!is_heap_ && (empty() || position >= positions_.back())) {
        positions_.push_back(position);
        return;
      }
      if (!is_heap_) {
        positions_.erase(positions_.begin(), positions_.begin() + head_);
        head_ = 0;
        std::ranges::make_heap(positions_, std::greater<>());
        is_heap_ = true;
      }
      positions_.push_back(position);
      std::ranges::push_heap(positions_, std::greater<>());
    }
    uint32_t Pop() {
      if (!is_heap_) return positions_[head_++];
      std::ranges::pop_heap(positions_, std::greater<>());
      const uint32_t position = positions_.back();
      positions_.pop_back();
      return position;
    }

   private:
    std::vector<uint32_t> positions_;
    size_t head_ = 0;
    bool is_heap_ = false;
  };

  // The buckets used last, by rank: a long piece uses few at a time. The map's nodes do not move.
  struct Recent {
    uint32_t rank = 0;
    Bucket* bucket = nullptr;
  };
  static constexpr size_t kRecent = 64;

  std::unordered_map<uint32_t, Bucket> buckets_;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ranks_;
  std::array<Recent, kRecent> recent_;
};

uint64_t PairOf(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Slots for `count` entries, at most half full; the index is the top bits of a 64-bit product.
int ShiftFor(size_t count) { return 64 - std::bit_width(std::max<size_t>(count, 8) * 2 - 1); }

}  // namespace

BytePairs::BytePairs(std::vector<std::string_view> tokens, const std::vector<Merge>& merges,
                     bool ignore_merges)
    : tokens_(std::move(tokens)) {
  byte_ids_.fill(-1);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].size() == 1) {
      byte_ids_[static_cast<uint8_t>(tokens_[id][0])] = static_cast<int32_t>(id);
    }
  }
  CHECK(std::ranges::find(byte_ids_, -1) == byte_ids_.end());
  AddMerges(merges);

  short_shift_ = ShiftFor(tokens_.size());
  short_pieces_.resize(size_t{1} << (64 - short_shift_));
  // Skips a token that its bytes' merges do not produce. The tables filled so far do not change the
  // answer.
  std::vector<int32_t> ids;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    ids.clear();
    if (!ignore_merges) Encode(tokens_[id], &ids);
    if (ignore_merges || (ids.size() == 1 && ids[0] == static_cast<int32_t>(id))) {
      AddPiece(static_cast<int32_t>(id));
    }
  }
}

void BytePairs::AddMerges(const std::vector<Merge>& merges) {
  merge_shift_ = ShiftFor(merges.size());
  merges_.resize(size_t{1} << (64 - merge_shift_));
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    results_.push_back(merge.result);
    merges_[SlotOf(PairOf(merge.left, merge.right))] = {PairOf(merge.left, merge.right), rank,
                                                        merge.result};
  }
  byte_ranks_.resize(256 * 256);
  for (size_t pair = 0; pair < byte_ranks_.size(); ++pair) {
    byte_ranks_[pair] = RankOf(byte_ids_[pair >> 8], byte_ids_[pair & 0xFF]);
  }
}

size_t BytePairs::SlotOf(uint64_t pair) const {
  const size_t mask = merges_.size() - 1;
  const uint64_t mixed = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15u;
  size_t slot = mixed >> merge_shift_;
  while (merges_[slot].pair != pair && merges_[slot].pair != UINT64_MAX) slot = (slot + 1) & mask;
  return slot;
}

uint32_t BytePairs::RankOf(int32_t left, int32_t right) const {
  const MergeSlot& slot = merges_[SlotOf(PairOf(left, right))];
  return slot.pair == UINT64_MAX ? kNoRank : slot.rank;
}

BytePairs::ShortKey BytePairs::KeyOf(std::string_view piece) {
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

size_t BytePairs::SlotOf(const ShortKey& key) const {
  const size_t mask = short_pieces_.size() - 1;
  uint64_t mixed = (key.low ^ std::rotl(key.high, 32) * 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ mixed >> 32) * 0x9E3779B97F4A7C15u;
  size_t slot = mixed >> short_shift_;
  while (short_pieces_[slot].id >= 0 && short_pieces_[slot].key != key) slot = (slot + 1) & mask;
  return slot;
}

void BytePairs::AddPiece(int32_t id) {
  const std::string_view token = tokens_[id];
  max_piece_ = std::max(max_piece_, token.size());
  if (token.size() > kMaxShort) {
    long_pieces_.emplace(token, id);
    return;
  }
  const ShortKey key = KeyOf(token);
  short_pieces_[SlotOf(key)] = {key, id};
}

int32_t BytePairs::FindPiece(std::string_view piece) const {
  if (piece.size() <= kMaxShort) return short_pieces_[SlotOf(KeyOf(piece))].id;
  if (piece.size() > max_piece_) return -1;
  const auto at = long_pieces_.find(piece);
  return at == long_pieces_.end() ? -1 : at->second;
}

void BytePairs::Encode(std::string_view piece, std::vector<int32_t>* ids) const {
  if (const int32_t id = FindPiece(piece); id >= 0) {
    ids->push_back(id);
  } else if (piece.size() <= kMaxShortMerge) {
    MergeShort(piece, ids);
  } else {
    MergeLong(piece, ids);
  }
}

void BytePairs::MergeShort(std::string_view piece, std::vector<int32_t>* ids) const {
  int32_t symbols[kMaxShortMerge];
  uint32_t ranks[kMaxShortMerge];  // of symbols i and i + 1; kNoRank at the end
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) {
    const uint8_t byte = static_cast<uint8_t>(piece[i]);
    symbols[i] = byte_ids_[byte];
    ranks[i] =
        i + 1 < count ? byte_ranks_[byte << 8 | static_cast<uint8_t>(piece[i + 1])] : kNoRank;
  }
  while (true) {
    size_t best = 0;
    for (size_t i = 1; i < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (count == 0 || ranks[best] == kNoRank) break;
    symbols[best] = results_[ranks[best]];
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
    }
    ranks[best] = best + 1 < count ? RankOf(symbols[best], symbols[best + 1]) : kNoRank;
    if (best > 0) ranks[best - 1] = RankOf(symbols[best - 1], symbols[best]);
  }
  ids->insert(ids->end(), symbols, symbols + count);
}

void BytePairs::MergeLong(std::string_view piece, std::vector<int32_t>* ids) const {
  struct Symbol {
    int32_t id;  // -1: merged into the previous symbol
    uint32_t previous, next;
  };
  const uint32_t count = static_cast<uint32_t>(piece.size());
  std::vector<Symbol> symbols(count);
  PairQueue queue;
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t byte = static_cast<uint8_t>(piece[i]);
    symbols[i] = {byte_ids_[byte], i - 1, i + 1};
    if (i + 1 == count) break;
    const uint32_t rank = byte_ranks_[byte << 8 | static_cast<uint8_t>(piece[i + 1])];
    if (rank != kNoRank) queue.Push(rank, i);
  }
  while (!queue.empty()) {
    const auto [rank, at] = queue.Pop();
    Symbol& symbol = symbols[at];
    // The pair may have changed since it was queued.
    if (symbol.id < 0 || symbol.next >= count ||
        RankOf(symbol.id, symbols[symbol.next].id) != rank) {
      continue;
    }
    symbol.id = results_[rank];
    symbols[symbol.next].id = -1;
    symbol.next = symbols[symbol.next].next;
    if (symbol.next < count) {
      symbols[symbol.next].previous = at;
      const uint32_t after = RankOf(symbol.id, symbols[symbol.next].id);
      if (after != kNoRank) queue.Push(after, at);
    }
    if (at > 0) {
      const uint32_t before = RankOf(symbols[symbol.previous].id, symbol.id);
      if (before != kNoRank) queue.Push(before, symbol.previous);
    }
  }
  for (uint32_t i = 0; i < count; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace quire

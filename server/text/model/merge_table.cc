// Merges pairs: a scan over a small array for words, buckets by rank for long pieces.
#include "server/text/model/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>

namespace quire {
namespace {

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

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges)
    // At most half of the slots get used; the index is the top bits of a 64-bit product.
    : shift_(64 - std::bit_width(std::max<size_t>(merges.size(), 8) * 2 - 1)) {
  slots_.resize(size_t{1} << (64 - shift_));
  for (const Merge& merge : merges) {
    if (merge.rank >= results_.size()) results_.resize(merge.rank + 1);
    results_[merge.rank] = merge.result;
    const uint64_t pair = PairOf(merge.left, merge.right);
    slots_[SlotOf(pair)] = {pair, merge.rank};
  }
}

size_t MergeTable::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  const uint64_t mixed = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15u;
  size_t slot = mixed >> shift_;
  while (slots_[slot].pair != pair && slots_[slot].pair != UINT64_MAX) slot = (slot + 1) & mask;
  return slot;
}

uint32_t MergeTable::RankOf(int32_t left, int32_t right) const {
  const Slot& slot = slots_[SlotOf(PairOf(left, right))];
  return slot.pair == UINT64_MAX ? kNoRank : slot.rank;
}

size_t MergeTable::MergeShort(int32_t* symbols, uint32_t* ranks, size_t count) const {
  while (true) {
    size_t best = 0;
    for (size_t i = 1; i < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (count == 0 || ranks[best] == kNoRank) return count;
    symbols[best] = results_[ranks[best]];
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
    }
    ranks[best] = best + 1 < count ? RankOf(symbols[best], symbols[best + 1]) : kNoRank;
    if (best > 0) ranks[best - 1] = RankOf(symbols[best - 1], symbols[best]);
  }
}

void MergeTable::MergeLong(std::vector<int32_t>* ids) const {
  struct Symbol {
    int32_t id;  // -1: merged into the previous symbol
    uint32_t previous, next;
  };
  const uint32_t count = static_cast<uint32_t>(ids->size());
  std::vector<Symbol> symbols(count);
  PairQueue queue;
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i] = {(*ids)[i], i - 1, i + 1};
    if (i + 1 == count) break;
    const uint32_t rank = RankOf((*ids)[i], (*ids)[i + 1]);
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
  ids->clear();
  for (uint32_t i = 0; i < count; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace quire

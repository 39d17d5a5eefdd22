// MergeTable: the merges of a BPE model: which pairs of tokens become one, and in which order.
// Filled once, then only read; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/text/model/huge_pages.h"

namespace quire {

class MergeTable {
 public:
  // Of two pairs the one of lower rank merges first, of equal ranks the one further left. All
  // merges of one rank have one result.
  struct Merge {
    int32_t left, right, result;
    uint32_t rank;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;

  // A pair listed twice has the rank of the last. Ranks are below 2^31.
  explicit MergeTable(const std::vector<Merge>& merges);

  uint32_t RankOf(int32_t left, int32_t right) const;  // kNoRank: the pair does not merge
  int32_t Result(uint32_t rank) const { return results_[rank]; }

  // Merges symbols[0, count) where `ranks[i]` is the rank of symbols i and i + 1, kNoRank for the
  // last. Quadratic, and faster than MergeLong up to kMaxShort symbols. Returns the new count.
  static constexpr size_t kMaxShort = 64;
  size_t MergeShort(int32_t* symbols, uint32_t* ranks, size_t count) const;
  // Merges any number of symbols, in time count * log(count).
  void MergeLong(std::vector<int32_t>* symbols) const;

 private:
  struct Slot {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = 0;
  };
  size_t SlotOf(uint64_t pair) const;

  std::vector<int32_t> results_;              // by rank
  std::vector<Slot, HugePages<Slot>> slots_;  // open addressing
  int shift_ = 0;
};

}  // namespace quire

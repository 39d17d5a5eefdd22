// ShuffledBlocks: the block tables of the sequences of an attention test.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/kernels/cases.h"

namespace quire {

// Sequence s has needs[s] of the blocks from 1 on, in random order, and row `rows[s]` of a table
// whose rows have `stride` places each; places behind a sequence's blocks are 0. The rows are in
// the opposite order of the sequences.
struct ShuffledBlocks {
  ShuffledBlocks() = default;
  ShuffledBlocks(const std::vector<int32_t>& needs, int64_t stride) : stride(stride) {
    for (int32_t need : needs) count += need;
    std::vector<int32_t> ids;
    for (int32_t b = 1; b < count; ++b) ids.push_back(b);
    Random random(7);
    for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random.Below(i)]);
    table.assign(needs.size() * stride, 0);
    for (size_t s = 0; s < needs.size(); ++s) {
      rows.push_back(static_cast<int32_t>(needs.size() - 1 - s));
      for (int32_t b = 0; b < needs[s]; ++b) {
        table[rows[s] * stride + b] = ids.back();
        ids.pop_back();
      }
    }
  }

  // The block in a place of a sequence.
  int64_t At(size_t s, int64_t place) const { return table[rows[s] * stride + place]; }

  int64_t stride = 0;
  int32_t count = 1;  // of a pool that has these blocks and block 0
  std::vector<int32_t> table, rows;
};

}  // namespace quire

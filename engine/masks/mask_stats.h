// MaskStats: what the masks of a server cost so far, as plain values.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire {

struct MaskStats {
  // Upper edges of the buckets of a mask's time, in nanoseconds, inclusive. Longer times count in
  // one more bucket.
  static constexpr std::array<int64_t, 8> kEdges = {
      10'000, 100'000, 500'000, 1'000'000, 5'000'000, 20'000'000, 100'000'000, 1'000'000'000};

  std::array<uint64_t, kEdges.size() + 1> masks = {};  // by bucket
  uint64_t made = 0;
  int64_t ns = 0;     // that making them took, over all threads
  uint64_t late = 0;  // steps were planned while they were made

  void Add(int64_t mask_ns) {
    const auto edge = std::lower_bound(kEdges.begin(), kEdges.end(), mask_ns);
    ++masks[static_cast<size_t>(edge - kEdges.begin())];
    ++made;
    ns += mask_ns;
  }
};

}  // namespace quire

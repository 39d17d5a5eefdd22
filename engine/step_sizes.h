// StepSizes: how many retired steps computed how many tokens, for a histogram.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire {

struct StepSizes {
  // Upper edges of the buckets, inclusive: those of vLLM's iteration_tokens_total. Larger steps
  // count in one more bucket.
  static constexpr std::array<int64_t, 13> kEdges = {1,   8,    16,   32,   64,   128,  256,
                                                     512, 1024, 2048, 4096, 8192, 16384};

  std::array<uint64_t, kEdges.size() + 1> steps{};  // by bucket
  uint64_t tokens = 0;                              // of all steps

  void Add(int64_t step_tokens) {
    const auto edge = std::lower_bound(kEdges.begin(), kEdges.end(), step_tokens);
    ++steps[static_cast<size_t>(edge - kEdges.begin())];
    tokens += static_cast<uint64_t>(step_tokens);
  }
};

}  // namespace quire

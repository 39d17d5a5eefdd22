// QueryFragments: where a warp's queries lie once they are loaded: in registers, or in shared
// memory where heads are too large for that.
#pragma once

#include "kernels/cuda/attention/attention_tile.cuh"

namespace quire::cuda {

template <int D>
inline constexpr bool kQueriesInShared = D > 128;

template <int D>
class QueryFragments {
 public:
  __device__ explicit QueryFragments(uint32_t shared) : shared_(shared) {}

  __device__ __forceinline__ void Get(int k, uint32_t (&fragment)[4]) const {
    if constexpr (kInShared) {
      LoadMatrices(fragment, FragmentAddress<D * 2>(shared_) ^ VectorPair(k));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) fragment[i] = fragment_[k][i];
    }
  }

 protected:
  static constexpr bool kInShared = kQueriesInShared<D>;

  const uint32_t shared_;
  uint32_t fragment_[kInShared ? 1 : D / 16][4];
};

}  // namespace quire::cuda

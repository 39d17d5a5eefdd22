// ActivationStream: one warp's activations of SkinnyMatMul, through registers.
#pragma once

#include <cstdint>

#include "kernels/cuda/matmul/skinny/skinny_layout.cuh"

namespace quire::cuda::skinny {

// A lane's 16 bytes of each half of a chunk, of the columns that it takes of the weights.
template <int kTiles>
struct Activations {
  uint4 at[kTiles][2];  // [tile][half of the chunk]
};

// One warp's activations: its chunks in turn up to chunk `end`, zeros past the last, and again from
// the first for the next pass.
template <typename F, int kTiles>
class ActivationStream {
 public:
  using T = typename F::Element;

  __device__ ActivationStream(const Product& p, int end)
      : p_(p),
        end_(end),
        token_(threadIdx.x % 32 / 4),
        column_(threadIdx.x % 4 * kVector<T>),
        chunk_(threadIdx.x / 32) {}

  __device__ __forceinline__ Activations<kTiles> Next() {
    Activations<kTiles> x;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int token = tile * kTileTokens + token_;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = chunk_ * kChunk<T> + half * kHalf<T> + column_;
        const T* const from = static_cast<const T*>(p_.x) + token * p_.x_stride + column;
        const bool within = token < p_.tokens && column < p_.k;
        x.at[tile][half] = within ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
      }
    }
    chunk_ += kWarps;
    if (chunk_ >= end_) chunk_ = threadIdx.x / 32;
    return x;
  }

 private:
  const Product& p_;
  const int end_, token_, column_;
  int chunk_;
};

// The scales of a chunk for the tokens of a lane's sums: two of each tile. They are loaded when the
// chunk begins: its first weights hide their latency.
template <int kTiles>
using TokenScales = float[kTiles][2];
template <int kTiles>
__device__ __forceinline__ void LoadScales(const Product& p, int chunk,
                                           TokenScales<kTiles>& scales) {
  const float* const of_chunk = p.x_scales + chunk * p.x_scale_stride;
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    const int token = i / 2 * kTileTokens + threadIdx.x % 4 * 2 + i % 2;
    scales[i / 2][i % 2] = token < p.tokens ? of_chunk[token] : 0.0f;
  }
}

}  // namespace quire::cuda::skinny

// ActivationRing: a warp's activations of 16 bits on their way through shared memory, for products
// of few tokens (band_product.cuh).
#pragma once

#include <cstdint>

#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/matmul/packed/band_product.cuh"

namespace quire::cuda {

inline constexpr int kRingTokens = 8;  // of a tile

// With one tile the next chunk is copied while one is used; two tiles leave no room for that.
template <typename T, int kTiles>
class ActivationRing {
  static constexpr int kRowBytes = kChunkColumns * 2, kVectors = kRowBytes / 16;
  static constexpr int kTileBytes = kRingTokens * kRowBytes, kSlotBytes = kTiles * kTileBytes;
  static constexpr int kSlots = kTiles == 1 ? 2 : 1;

 public:
  using Slots = char[kSlots][kSlotBytes];

  __device__ ActivationRing(const BandProduct& p, Slots& slots, int first)
      : p_(p),
        slots_(SharedAddress(slots)),
        fragments_(SwizzledOffset<kRowBytes>(threadIdx.x % 8, threadIdx.x % 32 / 8)) {
    if (kSlots > 1) Start(first);
  }

  // Waits for a chunk, behind which `next` is used.
  __device__ __forceinline__ void Take(int chunk, int next) {
    __syncwarp();  // every lane has read the chunk before
    if constexpr (kSlots > 1) slot_ ^= kSlotBytes;
    Start(kSlots > 1 ? next : chunk);
    CopyWait<kSlots - 1>();
    __syncwarp();  // every lane's copies have arrived
  }
  // The second operands of a span of 32 columns: word i is that of columns 8i + 2q and the next
  // one of this lane's token, q its place among four.
  __device__ __forceinline__ void Get(int tile, int span, uint32_t (&x)[4]) const {
    const uint32_t taken = kSlots > 1 ? slot_ ^ kSlotBytes : 0;
    LoadMatrices(x, slots_ + taken + tile * kTileBytes + (fragments_ ^ span << 6));
  }
  // Waits for the chunk behind the last, which nothing reads.
  __device__ __forceinline__ void End() const { CopyWait<0>(); }

 private:
  // Zeros stand for tokens and columns past the last.
  __device__ __forceinline__ void Start(int chunk) const {
    const int lane = threadIdx.x % 32, column = chunk * kChunkColumns + lane % kVectors * 8;
#pragma unroll
    for (int i = 0; i < kTiles * kRingTokens * kVectors / 32; ++i) {
      const int token = i * (32 / kVectors) + lane / kVectors;
      const bool within = token < p_.tokens && column < p_.w.k;
      const T* const from = static_cast<const T*>(p_.x) + token * p_.x_stride + column;
      CopyAsync(slots_ + slot_ + SwizzledOffset<kRowBytes>(token, lane % kVectors),
                within ? from : p_.x, within);
    }
    CopyCommit();
  }

  const BandProduct& p_;
  const uint32_t slots_, fragments_;
  uint32_t slot_ = 0;  // where the next chunk goes
};

}  // namespace quire::cuda

// ActivationRing: a warp's activations on their way through shared memory, for products of few
// tokens (band_product.cuh). A chunk of them is one tile of eight tokens, or two.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/matmul/bands/band_product.cuh"
#include "kernels/cuda/matmul/bands/tile_sums.cuh"

namespace quire::cuda {

// Elements are those of T, kColumns a chunk. One chunk is in use, and the next is on its way if it
// has at most 2 KB; there is no room for more.
template <typename T, int kColumns, int kTiles>
class ActivationRing {
  static constexpr int kRowBytes = kColumns * static_cast<int>(sizeof(T));
  static constexpr int kTileBytes = kMatrixTokens * kRowBytes;
  static constexpr int kSlotBytes = kTiles * kTileBytes;
  static constexpr int kSlots = kSlotBytes <= 2048 ? 2 : 1;

 public:
  using Slots = char[kSlots][kSlotBytes];
  static constexpr int kQuads = kRowBytes / 64;  // of vectors of 16 bytes

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
  // Words of a quad of vectors: x[i] has bytes 4q to 4q + 3 of vector i of this lane's token, q its
  // place among four.
  __device__ __forceinline__ void Get(int tile, int quad, uint32_t (&x)[4]) const {
    const uint32_t taken = kSlots > 1 ? slot_ ^ kSlotBytes : 0;
    LoadMatrices(x, slots_ + taken + tile * kTileBytes + (fragments_ ^ quad << 6));
  }
  // Waits for the chunk behind the last, which nothing reads.
  __device__ __forceinline__ void End() const { CopyWait<0>(); }

 private:
  // Zeros stand for tokens and columns past the last.
  __device__ __forceinline__ void Start(int chunk) const {
    constexpr int kVectors = kRowBytes / 16, kElements = 16 / static_cast<int>(sizeof(T));
    const int lane = threadIdx.x % 32;
    const int column = chunk * kColumns + lane % kVectors * kElements;
#pragma unroll
    for (int i = 0; i < kTiles * kMatrixTokens * kVectors / 32; ++i) {
      const int token = i * (32 / kVectors) + lane / kVectors;
      const bool within = token < p_.tokens && column < p_.w.k;
      const T* const from = static_cast<const T*>(p_.x) + token * p_.x_stride + column;
      CopyAsync(slots_ + slot_ + SwizzledOffset<kRowBytes>(token, lane % kVectors), from, within);
    }
    CopyCommit();
  }

  const BandProduct& p_;
  const uint32_t slots_, fragments_;
  uint32_t slot_ = 0;  // where the next chunk goes
};

}  // namespace quire::cuda

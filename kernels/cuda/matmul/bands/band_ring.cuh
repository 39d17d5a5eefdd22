// BandRing and BandReader: weights on their way through shared memory, for products of few tokens
// (band_product.cuh).
//
// A stage of the ring is a band, 16 rows of weights, for one chunk of columns of each warp that
// computes. Two more warps supply them (band_supplier.cuh).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/matmul/bands/weight_passes.cuh"

namespace quire::cuda {

inline constexpr int kBandRows = 16;
inline constexpr int kSuppliers = 2;  // warps

// Columns of a chunk: at most 128 bytes of a row.
constexpr int ChunkColumns(int bits) { return bits == 16 ? 64 : 128; }

// A matrix and the scales of its groups of columns, [group][row >> scale_shift].
struct BandWeights {
  const uint8_t* weights;
  const float* scales;
  const uint8_t* zeros;  // null: the middle of the range
  int rows, k;
  int group_chunks;  // that share a scale; 1 if a chunk has several groups
  int scale_shift;
  bool wide_scales;  // those of 16 rows are aligned and can be copied 16 bytes at a time
  int64_t row_bytes, scale_stride;

  constexpr int bands() const { return CeilDiv(rows, kBandRows); }
};

// In shared memory. Weights have kElementBits bits and of a chunk kChunkGroups groups, with a scale
// and a zero for each row; with no groups a stage has no scales. kStageWarps warps compute. Vector
// v of 16 bytes of a row lies where those of eight rows at the same columns are in different banks,
// and so are the halves of a line that two chunks of four bits share. The stages take at most
// kBytes.
template <int kBits, int kGroups, int kWarps, int kBytes>
struct BandRing {
  static constexpr int kElementBits = kBits, kChunkGroups = kGroups, kStageWarps = kWarps;
  static constexpr int kColumns = ChunkColumns(kBits);
  static constexpr int kRowBytes = kColumns * kBits / 8;  // of a chunk
  static constexpr int kVectors = kRowBytes / 16;
  static constexpr int kChunkPitch = kBandRows * kRowBytes + 64;
  static constexpr int kScales = kWarps * kChunkPitch;  // where they begin
  static constexpr int kZeros = kScales + kWarps * kGroups * kBandRows * 4;
  static constexpr int kStageBytes = RoundUp(kZeros + kWarps * kGroups * kBandRows, 128);
  static constexpr int kStages = kBytes / kStageBytes;

  alignas(128) char stages[kStages][kStageBytes];
  uint64_t full[kStages], empty[kStages];
  PredecessorFlag predecessor;

  __device__ __forceinline__ Barrier Full(int stage) const { return {SharedAddress(&full[stage])}; }
  __device__ __forceinline__ Barrier Empty(int stage) const {
    return {SharedAddress(&empty[stage])};
  }
  // By one thread, before a barrier of the block. Every lane of a supplier arrives when its copies
  // have, and one lane of each warp that has read a stage.
  __device__ void Init() {
    for (int i = 0; i < kStages; ++i) {
      Full(i).Init(kSuppliers * 32);
      Empty(i).Init(kWarps);
    }
    predecessor.Clear();
  }

  __device__ static __forceinline__ int VectorAt(int row, int v) {
    return row * kRowBytes + (kRowBytes == 64 ? v ^ (row / 2 % 4) : v ^ (row % 8)) * 16;
  }
};

// A computing warp's reads: of a stage the chunk that is the warp's.
template <typename Ring>
class BandReader {
 public:
  static constexpr int kBits = Ring::kElementBits, kGroups = Ring::kChunkGroups;

  // One band of the chunk, for a lane: the words of rows r and r + 8, and each group's scales and
  // zeros of these rows. Word i is bytes 4q to 4q + 3 of vector i, q the lane's place among four.
  struct Unit {
    uint32_t words[2][Ring::kVectors];
    float scales[std::max(kGroups, 1)][2];
    int32_t zeros[std::max(kGroups, 1)][2];
  };

  __device__ BandReader(const Ring& ring, bool has_zeros)
      : ring_(ring), warp_(threadIdx.x / 32), lane_(threadIdx.x % 32), has_zeros_(has_zeros) {}

  // Waits for the next stage, reads its unit and gives the stage back.
  __device__ __forceinline__ void Take(Unit& unit) {
    ring_.Full(place_.stage).Wait(place_.phase);
    const uint32_t stage = SharedAddress(ring_.stages[place_.stage]);
#pragma unroll
    for (int i = 0; i < Ring::kVectors; i += 4) {
      const uint32_t from =
          stage + warp_ * Ring::kChunkPitch + Ring::VectorAt(lane_ % 8, i + lane_ / 8);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        auto& to = reinterpret_cast<uint32_t(&)[4]>(unit.words[j][i]);
        LoadMatrices(to, from + j * 8 * Ring::kRowBytes);
      }
    }
#pragma unroll
    for (int i = 0; i < kGroups * 2; ++i) {
      const int row = (warp_ * kGroups + i / 2) * kBandRows + lane_ / 4 + i % 2 * 8;
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(unit.scales[i / 2][i % 2])
                   : "r"(stage + Ring::kScales + row * 4)
                   : "memory");
      unit.zeros[i / 2][i % 2] = 1 << (kBits - 1);
      if (has_zeros_) {
        asm volatile("ld.shared.u8 %0, [%1];"
                     : "=r"(unit.zeros[i / 2][i % 2])
                     : "r"(stage + Ring::kZeros + row)
                     : "memory");
      }
    }
    Pass();
  }
  // Gives the next stage back when it has come, without a look at it.
  __device__ __forceinline__ void Skip() {
    ring_.Full(place_.stage).Wait(place_.phase);
    Pass();
  }

 private:
  __device__ __forceinline__ void Pass() {
    __syncwarp();  // every lane has read the stage
    ring_.Empty(place_.stage).ArriveIf(lane_ == 0);
    place_.Advance();
  }

  const Ring& ring_;
  const int warp_, lane_;
  const bool has_zeros_;
  Place<Ring::kStages> place_;
};

}  // namespace quire::cuda

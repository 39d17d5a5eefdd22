// BandSupplier: a warp that copies packed weights to a ring (band_ring.cuh), with the scales and
// zeros of their rows, in the order in which the product uses them: pass by pass
// (weight_passes.cuh), 2,048 columns after another, band by band.
//
// It begins before the predecessor has ended, with few stages in flight so that the predecessor's
// own loads find no queue, and asks for all that fit when it has.
#pragma once

#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/weight_passes.cuh"
#include "kernels/cuda/matmul/packed/band_ring.cuh"

namespace quire::cuda {

// Columns and groups past the last keep what the stage had before: integers,
// which the product multiplies by zeros, and scales that it does not use.
template <typename Ring>
class BandSupplier {
 public:
  static constexpr int kGroups = Ring::kChunkGroups;

  __device__ BandSupplier(const PackedBands& p, Ring& ring, int supplier)
      : p_(p),
        ring_(ring),
        lane_(threadIdx.x % 32),
        first_chunk_(supplier * kSupplierChunks),
        policy_(EvictFirst()) {}

  __device__ __forceinline__ void Run(const RowShare& share) {
    for (RowPass pass(share); pass.begin < share.end; pass.Advance(share)) {
      for (int chunk = first_chunk_; chunk - first_chunk_ < CeilDiv(p_.k, kChunkColumns);
           chunk += kStageChunks) {
        const Sources sources = SourcesOf(chunk);
#pragma unroll 1
        for (int i = 0; i < pass.bands; ++i) {
          AwaitRoom();
          Copy(sources, pass.begin + i);
          ++supplied_;
          place_.Advance();
        }
      }
    }
  }

 private:
  // A warp copies 512 bytes of a row at a time.
  static constexpr int kParts = kSupplierChunks * Ring::kRowBytes / 512;
  static constexpr int kEarlyStages = 2;  // in flight while a predecessor runs

  // Where this lane copies from, of a stage's chunks.
  struct Sources {
    int64_t byte;            // of a row, of the first part
    int64_t scale[kGroups];  // of the first row; -1: none
    int64_t zero;
  };

  __device__ __forceinline__ Sources SourcesOf(int chunk) const {
    Sources s{.byte = int64_t{chunk} * Ring::kRowBytes + lane_ * 16};
#pragma unroll
    for (int i = 0; i < kGroups; ++i) s.scale[i] = FirstOf(chunk, i * 8 + lane_ / 4);
    s.zero = p_.zeros == nullptr || lane_ >= kSupplierChunks * kGroups ? -1 : FirstOf(chunk, lane_);
    return s;
  }
  // The place of the first row's scale, of a group of this warp's chunks from `chunk` on.
  __device__ __forceinline__ int64_t FirstOf(int chunk, int group) const {
    chunk += group / kGroups;
    const int column = chunk * kChunkColumns + group % kGroups * (kChunkColumns / kGroups);
    if (column >= p_.k) return -1;
    const int index = p_.group_chunks == 1 ? chunk : chunk / p_.group_chunks;
    return (index * kGroups + group % kGroups) * p_.scale_stride;
  }

  // Waits for the ring's next stage, and for older copies while a predecessor runs.
  __device__ __forceinline__ void AwaitRoom() {
    if (supplied_ >= kEarlyStages && !ring_.predecessor.IsSet()) {
      const int older = supplied_ - kEarlyStages;
      ring_.Full(older % Ring::kStages).Wait(older / Ring::kStages);
    }
    if (place_.phase > 0) ring_.Empty(place_.stage).Wait(place_.phase - 1);
  }

  __device__ __forceinline__ void Copy(const Sources& s, int band) const {
    const uint32_t stage = SharedAddress(ring_.stages[place_.stage]);
    const int row = band * kBandRows;
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      const int at = lane_ * 16 + part * 512;
      const int64_t byte = s.byte + part * 512;
      if (byte >= int64_t{p_.k} * Ring::kElementBits / 8) break;
      const uint8_t* from = p_.weights + row * p_.row_bytes + byte;
      const uint32_t to = stage + (first_chunk_ + at / Ring::kRowBytes) * Ring::kChunkPitch;
#pragma unroll
      for (int i = 0; i < kBandRows; ++i) {
        CopyOnce(to + Ring::VectorAt(i, at % Ring::kRowBytes / 16), from, 16, policy_);
        from += p_.row_bytes;
      }
    }
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      if (s.scale[i] < 0) continue;
      const int group = first_chunk_ * kGroups + i * 8 + lane_ / 4;
      CopyOnce(stage + Ring::kScales + group * kBandRows * 4 + lane_ % 4 * 16,
               p_.scales + s.scale[i] + row + lane_ % 4 * 4, 16, policy_);
    }
    if (s.zero >= 0) {
      const int group = first_chunk_ * kGroups + lane_;
      CopyOnce(stage + Ring::kZeros + group * kBandRows, p_.zeros + s.zero + row, 16, policy_);
    }
    ring_.Full(place_.stage).ArriveCopied();
  }

  const PackedBands& p_;
  Ring& ring_;
  const int lane_, first_chunk_;
  const uint64_t policy_;
  Place<Ring::kStages> place_;
  int supplied_ = 0;  // stages
};

}  // namespace quire::cuda

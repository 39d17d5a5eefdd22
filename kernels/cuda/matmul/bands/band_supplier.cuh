// BandSupplier: a warp that copies weights to a ring (band_ring.cuh), with the scales and zeros of
// their rows, in the order in which the product uses them: pass by pass (weight_passes.cuh), a
// chunk for each computing warp after another, band by band.
//
// It begins before the predecessor has ended, with few stages in flight so that the predecessor's
// own loads find no queue, and asks for all that fit when it has. The computing warps do not copy:
// each would ask for its whole ring before its activations, which would then come behind it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/matmul/bands/band_ring.cuh"
#include "kernels/cuda/matmul/bands/weight_passes.cuh"

namespace quire::cuda {

// Zeros stand for rows and columns past the last. Groups past the last keep what the stage had
// before: scales that the product does not use.
template <typename Ring>
class BandSupplier {
 public:
  static constexpr int kGroups = Ring::kChunkGroups;

  __device__ BandSupplier(const BandWeights& p, Ring& ring, int supplier)
      : p_(p),
        ring_(ring),
        lane_(threadIdx.x % 32),
        first_chunk_(supplier * kChunks),
        policy_(EvictFirst()) {}

  __device__ __forceinline__ void Run(const RowShare& share) {
    const int chunks = CeilDiv(p_.k, Ring::kColumns);
    for (RowPass pass(share); pass.begin < share.end; pass.Advance(share)) {
      for (int chunk = first_chunk_; chunk - first_chunk_ < chunks; chunk += Ring::kStageWarps) {
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
  static constexpr int kChunks = Ring::kStageWarps / kSuppliers;  // of a stage, this warp's
  // A warp copies 512 bytes of a row at a time.
  static constexpr int kParts = kChunks * Ring::kRowBytes / 512;
  static_assert(kParts * 512 == kChunks * Ring::kRowBytes);
  static constexpr int kEarlyStages = 2;  // in flight while a predecessor runs

  // Where this lane copies from, of a stage's chunks.
  struct Sources {
    int64_t byte;                         // of a row, of the first part
    int64_t scale[std::max(kGroups, 1)];  // of the first row; -1: none
    int64_t zero;
  };

  __device__ __forceinline__ Sources SourcesOf(int chunk) const {
    Sources s{.byte = int64_t{chunk} * Ring::kRowBytes + lane_ * 16};
#pragma unroll
    for (int i = 0; i < kGroups; ++i) s.scale[i] = FirstOf(chunk, i * 8 + lane_ / 4);
    s.zero = p_.zeros == nullptr ? -1 : FirstOf(chunk, lane_);
    return s;
  }
  // The place of the first row's scale, of a group of this warp's chunks from `chunk` on.
  __device__ __forceinline__ int64_t FirstOf(int chunk, int group) const {
    if constexpr (kGroups == 0) {
      return -1;
    } else {
      if (group >= kChunks * kGroups) return -1;
      chunk += group / kGroups;
      const int column = chunk * Ring::kColumns + group % kGroups * (Ring::kColumns / kGroups);
      if (column >= p_.k) return -1;
      const int index = p_.group_chunks == 1 ? chunk : chunk / p_.group_chunks;
      return (index * kGroups + group % kGroups) * p_.scale_stride;
    }
  }

  // Waits for the ring's next stage, and for older copies while a predecessor runs.
  __device__ __forceinline__ void AwaitRoom() {
    running_ = running_ && !ring_.predecessor.IsSet();
    if (running_ && supplied_ >= kEarlyStages) {
      const int older = supplied_ - kEarlyStages;
      ring_.Full(older % Ring::kStages).Wait(older / Ring::kStages);
    }
    if (place_.phase > 0) ring_.Empty(place_.stage).Wait(place_.phase - 1);
  }

  __device__ __forceinline__ void Copy(const Sources& s, int band) const {
    const uint32_t stage = SharedAddress(ring_.stages[place_.stage]);
    const int row = band * kBandRows;
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) CopyPart(stage, s.byte, row, part);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      if (s.scale[i] < 0) continue;
      const int group = first_chunk_ * kGroups + i * 8 + lane_ / 4;
      CopyScales(stage + Ring::kScales + group * kBandRows * 4 + lane_ % 4 * 16,
                 p_.scales + s.scale[i], row + lane_ % 4 * 4);
    }
    if (s.zero >= 0) {
      const int group = first_chunk_ * kGroups + lane_;
      CopyOnce(stage + Ring::kZeros + group * kBandRows, p_.zeros + s.zero + row, 16, policy_);
    }
    ring_.Full(place_.stage).ArriveCopied();
  }
  // Copies 512 bytes of each row.
  __device__ __forceinline__ void CopyPart(uint32_t stage, int64_t byte, int row, int part) const {
    const int at = lane_ * 16 + part * 512;
    byte += part * 512;
    const bool within = byte < int64_t{p_.k} * Ring::kElementBits / 8;
    const int left = within ? p_.rows - row : 0;
    const uint8_t* from = p_.weights + row * p_.row_bytes + byte;
    const uint32_t to = stage + (first_chunk_ + at / Ring::kRowBytes) * Ring::kChunkPitch;
#pragma unroll
    for (int i = 0; i < kBandRows; ++i) {
      CopyOnce(to + Ring::VectorAt(i, at % Ring::kRowBytes / 16), from, i < left ? 16 : 0, policy_);
      from += p_.row_bytes;
    }
  }
  // Copies the scales of four rows.
  __device__ __forceinline__ void CopyScales(uint32_t to, const float* of_group, int row) const {
    if (p_.wide_scales) return CopyOnce(to, of_group + row, 16, policy_);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      CopyFloat(to + i * 4, of_group + (min(row + i, p_.rows - 1) >> p_.scale_shift));
    }
  }

  const BandWeights& p_;
  Ring& ring_;
  const int lane_, first_chunk_;
  const uint64_t policy_;
  Place<Ring::kStages> place_;
  int supplied_ = 0;     // stages
  bool running_ = true;  // the predecessor, as far as this lane knows
};

}  // namespace quire::cuda

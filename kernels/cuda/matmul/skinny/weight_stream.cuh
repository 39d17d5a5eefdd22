// WeightStream: one warp's weights of SkinnyMatMul, through a ring in shared memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/weight_passes.cuh"
#include "kernels/cuda/matmul/skinny/skinny_layout.cuh"

namespace quire::cuda::skinny {

// A lane's part of the two operands. Of 64 bytes of a row the matrix units expect lane (row,
// quarter q) to have four bytes at each of 4q, 4q + 16, 4q + 32 and 4q + 48. Any other columns give
// the same sum if both operands agree, so a lane takes the 16 bytes from 16q on as they lie in
// memory.
struct WeightUnit {
  uint4 at[2][2];   // [half of the chunk][row, row + 8]
  float scales[2];  // of a chunk with scales: those rows'
};
__device__ __forceinline__ void CopyAsync(uint32_t to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

// One warp's weights in the order of use: pass by pass, chunk by chunk, group by group.
template <typename F, int kSlots>
class WeightStream {
 public:
  using T = typename F::Element;

  // Fills the ring, a few units at a time until the predecessor has ended.
  __device__ WeightStream(const Product& p, const RowShare& share, Shared<F, kSlots>& shared)
      : p_(p),
        share_(share),
        row_(threadIdx.x % 32 / 4),
        column_(threadIdx.x % 4 * kVector<T>),
        ring_(SharedAddress(shared.rings[threadIdx.x / 32]) + threadIdx.x % 32 * 16),
        scales_(SharedAddress(shared.scales[threadIdx.x / 32])),
        policy_(EvictFirst()),
        pass_(share),
        chunk_(threadIdx.x / 32) {
    if (chunk_ * kChunk<T> >= p.k) pass_.begin = share.end;  // this warp has no chunk
    Point();
#pragma unroll 1
    for (int i = 0; i < kSlots; ++i) {
      if (i >= kEarlySlots && !shared.predecessor.IsSet()) CopyWait<kEarlySlots - 1>();
      Fetch();
    }
  }

  // Waits for the oldest unit and reads it.
  __device__ __forceinline__ WeightUnit Take() const {
    CopyWait<kSlots - 1>();
    WeightUnit unit;
    const uint32_t from = ring_ + slot_ * kUnitBytes;
#pragma unroll
    for (int i = 0; i < kUnitVectors; ++i) {
      uint4& v = unit.at[i / 2][i % 2];
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "r"(from + i * 512)
                   : "memory");
    }
    if constexpr (F::kBlocks) TakeScales(unit);
    return unit;
  }
  // Starts the copy of the next unit, if any, to the slot of the oldest. Call it after the use of
  // the oldest.
  __device__ __forceinline__ void Fetch() {
    if (pass_.begin < share_.end) {
      Copy();
      Advance();
    }
    CopyCommit();
    slot_ = slot_ == kSlots - 1 ? 0 : slot_ + 1;
  }

 private:
  // Other lanes have copied the scales, and copy the next ones to their place.
  __device__ __forceinline__ void TakeScales(WeightUnit& unit) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(unit.scales[i])
                   : "r"(scales_ + (slot_ * kGroupRows + row_ + i * 8) * 4)
                   : "memory");
    }
    __syncwarp();
  }
  __device__ __forceinline__ void CopyScales() const {
    const int lane = threadIdx.x % 32;
    if (lane >= kGroupRows) return;
    const int row = min((pass_.begin + group_) * kGroupRows + lane, p_.n - 1);
    CopyAsync(scales_ + (slot_ * kGroupRows + lane) * 4,
              p_.w_scales + chunk_ * p_.w_scale_stride + (row >> p_.w_scale_shift));
  }
  // Zeros stand for rows and columns past the last.
  __device__ __forceinline__ void Copy() const {
    if constexpr (F::kBlocks) CopyScales();
    const uint32_t to = ring_ + slot_ * kUnitBytes;
    const int row = (pass_.begin + group_) * kGroupRows + row_;
    const int column = chunk_ * kChunk<T> + column_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int bytes = column + half * kHalf<T> < p_.k ? 16 : 0;
      const T* const from = from_ + half * kHalf<T>;
      CopyOnce(to + half * 2 * 512, from, row < p_.n ? bytes : 0, policy_);
      CopyOnce(to + (half * 2 + 1) * 512, from + 8 * p_.w_stride, row + 8 < p_.n ? bytes : 0,
               policy_);
    }
  }
  __device__ __forceinline__ void Point() {
    const int row = (pass_.begin + group_) * kGroupRows + row_;
    from_ = static_cast<const T*>(p_.w) + row * p_.w_stride + chunk_ * kChunk<T> + column_;
  }
  __device__ __forceinline__ void Advance() {
    if (++group_ < pass_.bands) {
      from_ += kGroupRows * p_.w_stride;
      return;
    }
    group_ = 0;
    chunk_ += kWarps;
    if (chunk_ * kChunk<T> >= p_.k) {
      chunk_ = threadIdx.x / 32;
      pass_.Advance(share_);
    }
    Point();
  }

  const Product& p_;
  const RowShare& share_;
  const int row_, column_;  // this lane's, within a group and within half a chunk
  const uint32_t ring_;     // this lane's 16 bytes of the first vector of the first slot
  const uint32_t scales_;   // of the first slot
  const uint64_t policy_;
  int slot_ = 0;
  RowPass pass_;  // of the unit to fetch next
  int chunk_, group_ = 0;
  const T* from_;  // this lane's first 16 bytes of that unit
};

}  // namespace quire::cuda::skinny

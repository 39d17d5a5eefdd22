// Widener: warps 1 to 3 of a prefill CTA where K and V are 8-bit: copies and scales the items'
// queries, and turns staged tiles into tiles of f16.
#pragma once

#include "kernels/cuda/attention/attention_eight_bit.cuh"
#include "kernels/cuda/attention/prefill_supply.cuh"

namespace quire::cuda {

template <typename T, typename H>
class Widener {
  using Of = Layout<H>;
  static constexpr int D = H::kDim, kTokens = Of::kTokens;

 public:
  __device__ Widener(const AttentionArgs& a, char* shared)
      : a_(a), rings_(shared), thread_(static_cast<int>(threadIdx.x) - 32) {}

  __device__ void Run() {
    for (uint32_t i = 0;; ++i) {
      rings_.items.WaitFull(i);
      const PrefillItem& item = rings_.item[i % kItemSlots];
      const int head = item.head;
      if (head >= 0) TakeItem(item, i);
      rings_.items.Empty(i).Arrive();
      if (head < 0) return;
    }
  }

 private:
  __device__ __forceinline__ void TakeItem(const PrefillItem& item, uint32_t i) {
    rings_.q.WaitEmpty(i);
    CopyQueries<T, H>(a_, item, rings_.q.Slot(i));
    ScaleQueries(rings_.q.Slot(i), a_.k_scales[item.head], rings_.FactorsOf(i));
    FenceForProducts();
    rings_.q.Full(i).Arrive();
    const Span<kTokens> span(a_, item.tile);
    const int end = item.tile.context;
    const int start = a_.window > 0 ? end - item.tile.num_queries + 1 - a_.window : 0;
#pragma unroll 1
    for (int token = span.begin; token < span.end; token += kTokens, ++widened_) {
      Widen(rings_.staged_k, rings_.k, 0, kTokens);
      // Slots before the first visible token or past the context may hold NaN, and zero times NaN
      // is NaN.
      Widen(rings_.staged_v, rings_.v, start - token, end - token);
    }
  }

  // Turns the vectors that this thread has copied into f16. kVectors lanes have a row; whole warps
  // leave the loop, because its count is a multiple of 32.
  __device__ __forceinline__ void ScaleQueries(uint32_t slot, float k_scale, float* factors) const {
    constexpr int kVectors = D / 8;
#pragma unroll 1
    for (int at = thread_; at < kPrefillRows * kVectors; at += kQueryThreads) {
      const int row = at / kVectors, vector = at % kVectors;
      const uint32_t place = slot + vector / 8 * Of::kQueryPanel + PanelOffset(row, vector % 8);
      const uint4 x = LoadVector(place);
      float largest = Larger<T>(Larger<T>(Larger<T>(Larger<T>(0.0f, x.x), x.y), x.z), x.w);
#pragma unroll
      for (int distance = kVectors / 2; distance > 0; distance /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
      }
      const QueryScale scale(largest);
      StoreVector(place, {scale.Scaled<T>(x.x), scale.Scaled<T>(x.y), scale.Scaled<T>(x.z),
                          scale.Scaled<T>(x.w)});
      if (vector == 0) factors[row] = scale.Factor(k_scale);
    }
  }

  // Widens the next tile; tokens outside [first, last) become zeros. The two halves of an eight of
  // lanes have vectors of rows r and r ^ 1 where a row has more than four: then neither the loads
  // nor the stores of an eight meet in a bank.
  template <int kCount>
  __device__ __forceinline__ void Widen(const Ring<kCount>& staged, const Ring<>& tiles, int first,
                                        int last) const {
    constexpr int kVectors = D / 16, kAtOnce = D > 128 ? 1 : 2;  // large heads leave few registers
    staged.WaitFull(widened_);
    tiles.WaitEmpty(widened_);
    const uint32_t from = staged.Slot(widened_), to = tiles.Slot(widened_);
#pragma unroll kAtOnce
    for (int at = thread_; at < kTokens * kVectors; at += kQueryThreads) {
      const int vector = at % kVectors, row = at / kVectors ^ (vector >> 2 & 1);
      uint4 x = LoadVector(from + row * D + vector * 16);
      if (row < first || row >= last) x = uint4{};
      const uint32_t panel = to + vector / 4 * Of::kTokenPanel;
      StoreVector(panel + PanelOffset(row, vector % 4 * 2),
                  {WidenLow(x.x), WidenHigh(x.x), WidenLow(x.y), WidenHigh(x.y)});
      StoreVector(panel + PanelOffset(row, vector % 4 * 2 + 1),
                  {WidenLow(x.z), WidenHigh(x.z), WidenLow(x.w), WidenHigh(x.w)});
    }
    FenceForProducts();
    tiles.Full(widened_).Arrive();
    staged.Empty(widened_).Arrive();
  }

  const AttentionArgs& a_;
  const Rings<H> rings_;
  const int thread_;      // of the three warps
  uint32_t widened_ = 0;  // tiles of K and V
};

}  // namespace quire::cuda

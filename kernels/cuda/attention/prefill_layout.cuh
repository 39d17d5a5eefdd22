// The shared memory of a prefill CTA: slots of queries and of tiles of K and V, and the rings of
// barriers by which suppliers and consumers take turns with them.
#pragma once

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/device/warpgroup.cuh"

namespace quire::cuda {

inline constexpr int kGroupThreads = 128, kGroups = 2;  // of consumers
inline constexpr int kPrefillThreads = (1 + kGroups) * kGroupThreads;
inline constexpr int kQueryThreads = 96;
inline constexpr int kGroupRows = kPrefillRows / kGroups;
inline constexpr int kPrefillSlots = 2;  // of K and of V
inline constexpr int kItemSlots = 4;

// A CTA's unit of work; head < 0 ends the CTA.
struct PrefillItem {
  PrefillTile tile;
  int head;
};

// Heads above 128 take half the tokens a turn and one slot of queries: so much do registers and
// shared memory hold.
//
// 8-bit tiles are copied to `staged` slots and widened from there to the slots of products. Shared
// memory has one of them, two for heads of 64.
template <typename H>
struct Layout {
  static constexpr int D = H::kDim;
  static constexpr int kTokens = D > 128 ? 64 : 128;  // of a turn
  static constexpr int kQuerySlots = D > 128 ? 1 : 2;
  static constexpr uint32_t kQueryPanel = kPrefillRows * kPanelRowBytes;
  static constexpr uint32_t kTokenPanel = kTokens * kPanelRowBytes;
  static constexpr uint32_t kQueryBytes = D / 64 * kQueryPanel;
  static constexpr uint32_t kTileBytes = D / 64 * kTokenPanel;  // of K, and of V
  static constexpr uint32_t kQAt = 0;
  static constexpr uint32_t kKAt = kQAt + kQuerySlots * kQueryBytes;
  static constexpr uint32_t kVAt = kKAt + kPrefillSlots * kTileBytes;
  static constexpr int kStages = D == 64 ? 2 : 1;
  static constexpr uint32_t kStagedBytes = H::kEightBitKv ? kTokens * D : 0;  // of K, and of V
  static constexpr uint32_t kStagedKAt = kVAt + kPrefillSlots * kTileBytes;
  static constexpr uint32_t kStagedVAt = kStagedKAt + kStages * kStagedBytes;
  // The factors of rows of scores, of 8-bit K.
  static constexpr uint32_t kFactorsAt = kStagedVAt + kStages * kStagedBytes;
  static constexpr uint32_t kFactorBytes = H::kEightBitKv ? kPrefillRows * 4 : 0;
  static constexpr uint32_t kBarriersAt = kFactorsAt + kQuerySlots * kFactorBytes;
  static constexpr uint32_t kItemsAt = kBarriersAt + 256;
  static constexpr uint32_t kSharedBytes = kItemsAt + kItemSlots * sizeof(PrefillItem);
};

// A ring of slots with a full and an empty barrier each. Use n of the ring has slot n % kCount.
template <int kCount = kPrefillSlots>
struct Ring {
  uint32_t barriers, slots;
  uint32_t slot_bytes;

  __device__ uint32_t Slot(uint32_t n) const { return slots + n % kCount * slot_bytes; }
  __device__ Barrier Full(uint32_t n) const { return {barriers + n % kCount * 8}; }
  __device__ Barrier Empty(uint32_t n) const { return {barriers + (kCount + n % kCount) * 8}; }
  __device__ void Init(uint32_t fills, uint32_t empties) const {
    for (uint32_t n = 0; n < kCount; ++n) {
      Full(n).Init(fills);
      Empty(n).Init(empties);
    }
  }
  __device__ void WaitFull(uint32_t n) const { Full(n).Wait(n / kCount); }
  __device__ bool IsFull(uint32_t n) const { return Full(n).IsOver(n / kCount); }
  // The first use of a slot finds it empty: the phase before a barrier's first counts as over.
  __device__ void WaitEmpty(uint32_t n) const { Empty(n).Wait(n / kCount + 1); }
};

template <typename H>
struct Rings {
  using Of = Layout<H>;

  Ring<kItemSlots> items;
  Ring<> k, v;
  Ring<Of::kQuerySlots> q;
  Ring<Of::kStages> staged_k, staged_v;  // of 8-bit tiles
  Barrier edge;
  PrefillItem* item;  // [kItemSlots]
  float* factors;     // [kQuerySlots][kPrefillRows]

  __device__ explicit Rings(char* shared) {
    const uint32_t base = SharedAddress(shared), barriers = base + Of::kBarriersAt;
    items = {barriers + 168, base + Of::kItemsAt, sizeof(PrefillItem)};
    q = {barriers, base + Of::kQAt, Of::kQueryBytes};
    k = {barriers + 32, base + Of::kKAt, Of::kTileBytes};
    v = {barriers + 64, base + Of::kVAt, Of::kTileBytes};
    edge = {barriers + 96};
    staged_k = {barriers + 104, base + Of::kStagedKAt, Of::kStagedBytes};
    staged_v = {barriers + 136, base + Of::kStagedVAt, Of::kStagedBytes};
    item = reinterpret_cast<PrefillItem*>(shared + Of::kItemsAt);
    factors = reinterpret_cast<float*>(shared + Of::kFactorsAt);
  }
  // The factors of the rows of item `i`.
  __device__ float* FactorsOf(uint32_t i) const {
    return factors + i % Of::kQuerySlots * kPrefillRows;
  }
  __device__ void Init() const {
    constexpr uint32_t kConsumerWarps = kGroups * 4;
    // Every thread that reads an item arrives. The compiler omits __syncwarp where a warp
    // converges, and then the race checker cannot see that one lane's arrival follows all reads.
    items.Init(32, kGroups * kGroupThreads + kQueryThreads);
    q.Init(kQueryThreads, kConsumerWarps);
    k.Init(H::kEightBitKv ? kQueryThreads : 1, kConsumerWarps);
    v.Init(H::kEightBitKv ? kQueryThreads : 1, kConsumerWarps);
    edge.Init(1);
    if constexpr (H::kEightBitKv) {
      staged_k.Init(1, kQueryThreads);
      staged_v.Init(1, kQueryThreads);
    }
    FenceBarriers();
  }
};

// Span: the tokens that an item's rows see in `count` of the tile's spans from `first` on, from a
// multiple of a turn's tokens on.
template <int kTokens>
struct Span {
  int begin, end;

  __device__ Span(const AttentionArgs& a, const PrefillTile& tile, int first, int count) {
    const int start = a.window > 0 ? max(a.EndFor(tile, 0) - a.window, 0) : 0;
    const int from = start / kTokens * kTokens, to = a.EndFor(tile, kPrefillRows - 1);
    const int turns = CeilDiv(to - from, kTokens);
    begin = from + FirstTurn(turns, tile.spans, first) * kTokens;
    end = min(from + FirstTurn(turns, tile.spans, first + count) * kTokens, to);
  }
  __device__ Span(const AttentionArgs& a, const PrefillTile& tile)
      : Span(a, tile, tile.first_span, tile.num_taken) {}
};

}  // namespace quire::cuda

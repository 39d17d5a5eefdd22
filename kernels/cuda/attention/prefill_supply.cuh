// The suppliers of a prefill CTA: warp 0 draws items and starts the copies of their K and V; warps
// 1 to 3 copy queries, and widen 8-bit K and V.
#pragma once

#include "kernels/cuda/attention/attention_eight_bit.cuh"
#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/attention/prefill_layout.cuh"

namespace quire::cuda {

// Supplier, warp 0: draws items and starts the copies of their K and V.
template <typename H>
class Supplier {
  using Of = Layout<H>;
  static constexpr int D = H::kDim, kTokens = Of::kTokens;
  static constexpr uint32_t kPanelBytes = Of::kTokenPanel;

 public:
  __device__ Supplier(const AttentionArgs& a, const CUtensorMap& map, char* shared)
      : a_(a), map_(map), shared_(shared), rings_(shared), lane_(threadIdx.x % 32) {}

  __device__ void Run() {
    Item next = Draw();
    for (uint32_t i = 0;; ++i) {
      rings_.items.WaitEmpty(i);
      if (lane_ == 0) {
        rings_.item[i % kSlots] = next;
        rings_.items.Full(i).Arrive();
      }
      __syncwarp();
      const Item& item = rings_.item[i % kSlots];  // registers are few
      if (item.head < 0) return;
      const Span<kTokens> span(a_, item.tile);
      int block = BlockOf(item.tile, span.begin);
      for (int token = span.begin; token < span.end; token += kTokens, ++copied_) {
        const int next_block = BlockOf(item.tile, token + kTokens);
        if constexpr (H::kEightBitKv) {
          CopyStaged(item, 0, block);
          CopyStaged(item, 1, block);
        } else {
          CopyK(item, block);
          CopyV(item, token, block);
        }
        // The next item is drawn while the first tile's copies are under way.
        if (token == span.begin) next = Draw();
        block = next_block;
      }
    }
  }

 private:
  // Each CTA draws one ticket too many; the last ticket of all resets the count. Heads vary
  // fastest, because a tile is equally long in every head and the longest tiles come first.
  __device__ Item Draw() const {
    Item item{};
    item.head = -1;
    if (lane_ != 0) return item;
    const uint32_t items = *a_.space.num_tiles * a_.num_kv_heads;
    const uint32_t ticket = atomicInc(a_.space.tickets, items + gridDim.x - 1);
    if (ticket >= items) return item;
    item.tile = a_.space.tiles[ticket / a_.num_kv_heads];
    item.head = static_cast<int>(ticket % a_.num_kv_heads);
    return item;
  }

  // A tile consists of boxes of one block (at most 64 tokens) and one panel. This lane copies box
  // number `lane_`.
  __device__ int Boxes() const { return kTokens >> a_.block_shift; }
  __device__ int BlockOf(const PrefillTile& tile, int token) const {
    const int last = (tile.context - 1) >> a_.block_shift;
    const int at = min((token >> a_.block_shift) + lane_ % Boxes(), last);
    return a_.block_table[tile.table_row * a_.table_stride + at];
  }
  __device__ void CopyTile(const Item& item, int kv, int block, uint32_t to, Barrier full) const {
    const int box = lane_ % Boxes(), panel = lane_ / Boxes();
    if (panel >= D / 64) return;
    const uint32_t rows = box << a_.block_shift;
    CopyBox(to + panel * kPanelBytes + rows * kPanelRowBytes, map_,
            {panel * 64, 0, item.head, kv, block}, full);
  }

  // Copies 8-bit K (0) or V (1) as rows of D bytes: one box a block.
  __device__ void CopyStaged(const Item& item, int kv, int block) const {
    const auto& ring = kv == 0 ? rings_.staged_k : rings_.staged_v;
    ring.WaitEmpty(copied_);
    const Barrier full = ring.Full(copied_);
    if (lane_ == 0) full.ArriveExpecting(Of::kStagedBytes);
    __syncwarp();
    if (lane_ >= Boxes()) return;
    CopyBox(ring.Slot(copied_) + (lane_ << a_.block_shift) * D, map_, {0, 0, item.head, kv, block},
            full);
  }

  __device__ void CopyK(const Item& item, int block) const {
    rings_.k.WaitEmpty(copied_);
    const Barrier full = rings_.k.Full(copied_);
    if (lane_ == 0) full.ArriveExpecting(Of::kTileBytes);
    __syncwarp();
    CopyTile(item, 0, block, rings_.k.Slot(copied_), full);
  }

  __device__ void CopyV(const Item& item, int token, int block) {
    // Slots before the first visible token or past the context may hold NaN, and zero times NaN is
    // NaN. So this warp overwrites their V with zeros.
    const PrefillTile& tile = item.tile;
    const int start = a_.window > 0 ? tile.context - tile.num_queries + 1 - a_.window : 0;
    const bool is_edge = token < start || token + kTokens > tile.context;
    rings_.v.WaitEmpty(copied_);
    const Barrier full = is_edge ? rings_.edge : rings_.v.Full(copied_);
    const uint32_t slot = rings_.v.Slot(copied_);
    if (lane_ == 0) full.ArriveExpecting(Of::kTileBytes);
    __syncwarp();
    CopyTile(item, 1, block, slot, full);
    if (!is_edge) return;
    full.Wait(edges_++);
    char* tile_bytes = shared_ + Of::kVAt + copied_ % kSlots * Of::kTileBytes;
    for (int row = 0; row < kTokens; ++row) {
      if (token + row >= start && token + row < tile.context) continue;
      for (uint32_t at = lane_ * 16; at < D * 2; at += 512) {
        char* to = tile_bytes + at / kPanelRowBytes * kPanelBytes + row * kPanelRowBytes;
        *reinterpret_cast<uint4*>(to + at % kPanelRowBytes) = uint4{};
      }
    }
    FenceForProducts();
    __syncwarp();
    if (lane_ == 0) rings_.v.Full(copied_).Arrive();
  }

  const AttentionArgs& a_;
  const CUtensorMap& map_;
  char* const shared_;
  const Rings<H> rings_;
  const int lane_;
  uint32_t copied_ = 0;  // tiles of K and V
  uint32_t edges_ = 0;
};

// Copies an item's queries. Rows past the last are zero.
template <typename T, typename H>
__device__ __forceinline__ void CopyQueries(const AttentionArgs& a, const Item& item,
                                            uint32_t slot) {
  constexpr int kVectors = H::kDim / 8;
  const int num_rows = item.tile.num_queries * a.group;
  for (int at = threadIdx.x - 32; at < kPrefillRows * kVectors; at += kQueryThreads) {
    const int row = at / kVectors, vector = at % kVectors, of_tile = item.tile.first_row + row;
    const bool valid = of_tile < num_rows && H::Has(a, vector * 8);
    const int query = valid ? a.QueryOf(of_tile) : 0, in_group = valid ? a.InGroup(of_tile) : 0;
    const T* q = static_cast<const T*>(a.q) + (item.tile.query_begin + query) * a.q_stride +
                 (item.head * a.group + in_group) * H::Row(a) + vector * 8;
    const uint32_t panel = vector / 8 * Layout<H>::kQueryPanel;
    CopyAsync(slot + panel + PanelOffset(row, vector % 8), q, valid);
  }
  CopyWait<0>();
}

// Warps 1 to 3: copy the items' queries.
template <typename T, typename H>
__device__ void SupplyQueries(const AttentionArgs& a, char* shared) {
  const Rings<H> rings(shared);
  for (uint32_t i = 0;; ++i) {
    rings.items.WaitFull(i);
    const Item item = rings.item[i % kSlots];
    rings.items.Empty(i).Arrive();
    if (item.head < 0) return;
    rings.q.WaitEmpty(i);
    CopyQueries<T, H>(a, item, rings.q.Slot(i));
    FenceForProducts();
    rings.q.Full(i).Arrive();
  }
}

// Widener, warps 1 to 3 where K and V are 8-bit: copies and scales the items' queries, and turns
// staged tiles into tiles of f16.
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
      const Item& item = rings_.item[i % kSlots];
      const int head = item.head;
      if (head >= 0) TakeItem(item, i);
      rings_.items.Empty(i).Arrive();
      if (head < 0) return;
    }
  }

 private:
  __device__ __forceinline__ void TakeItem(const Item& item, uint32_t i) {
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

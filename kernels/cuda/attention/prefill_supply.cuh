// The suppliers of a prefill CTA: warp 0 draws items and starts the copies of their K and V; warps
// 1 to 3 copy queries. Where K and V are 8-bit, these warps do more (prefill_widen.cuh).
#pragma once

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
    Drawn next = Draw();
    for (uint32_t i = 0;; ++i) {
      rings_.items.WaitEmpty(i);
      Publish(next, i);
      __syncwarp();
      const PrefillItem& item = rings_.item[i % kItemSlots];  // registers are few
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
  // A drawn item: a word of its tile in each of the first lanes, for registers are few.
  struct Drawn {
    int32_t word, head;
  };
  static constexpr int kTileWords = sizeof(PrefillTile) / 4;

  // Each CTA draws one ticket too many; the last ticket of all resets the count. Heads vary
  // fastest, because a tile is equally long in every head and the longest tiles come first.
  __device__ Drawn Draw() const {
    const uint32_t items = *a_.space.num_tiles * a_.num_kv_heads;
    uint32_t ticket = 0;
    if (lane_ == 0) ticket = atomicInc(a_.space.tickets, items + gridDim.x - 1);
    ticket = __shfl_sync(0xffffffffu, ticket, 0);
    if (ticket >= items) return {0, -1};
    const PrefillTile* tile = &a_.space.tiles[ticket / a_.num_kv_heads];
    const int word = lane_ < kTileWords ? reinterpret_cast<const int32_t*>(tile)[lane_] : 0;
    return {word, static_cast<int>(ticket % a_.num_kv_heads)};
  }
  // Every lane that writes a word arrives, so that the race checker sees the order.
  __device__ void Publish(const Drawn& drawn, uint32_t i) const {
    PrefillItem& item = rings_.item[i % kItemSlots];
    if (lane_ < kTileWords) reinterpret_cast<int32_t*>(&item.tile)[lane_] = drawn.word;
    if (lane_ == 0) item.head = drawn.head;
    rings_.items.Full(i).Arrive();
  }

  // A tile consists of boxes of one block (at most 64 tokens) and one panel. This lane copies box
  // number `lane_`.
  __device__ int Boxes() const { return kTokens >> a_.block_shift; }
  __device__ int BlockOf(const PrefillTile& tile, int token) const {
    const int last = (tile.context - 1) >> a_.block_shift;
    const int at = min((token >> a_.block_shift) + lane_ % Boxes(), last);
    return a_.block_table[tile.table_row * a_.table_stride + at];
  }
  __device__ void CopyTile(const PrefillItem& item, int kv, int block, uint32_t to,
                           Barrier full) const {
    const int box = lane_ % Boxes(), panel = lane_ / Boxes();
    if (panel >= D / 64) return;
    const uint32_t rows = box << a_.block_shift;
    CopyBox(to + panel * kPanelBytes + rows * kPanelRowBytes, map_,
            {panel * 64, 0, item.head, kv, block}, full);
  }

  // Copies 8-bit K (0) or V (1) as rows of D bytes: one box a block.
  __device__ void CopyStaged(const PrefillItem& item, int kv, int block) const {
    const auto& ring = kv == 0 ? rings_.staged_k : rings_.staged_v;
    ring.WaitEmpty(copied_);
    const Barrier full = ring.Full(copied_);
    if (lane_ == 0) full.ArriveExpecting(Of::kStagedBytes);
    __syncwarp();
    if (lane_ >= Boxes()) return;
    CopyBox(ring.Slot(copied_) + (lane_ << a_.block_shift) * D, map_, {0, 0, item.head, kv, block},
            full);
  }

  __device__ void CopyK(const PrefillItem& item, int block) const {
    rings_.k.WaitEmpty(copied_);
    const Barrier full = rings_.k.Full(copied_);
    if (lane_ == 0) full.ArriveExpecting(Of::kTileBytes);
    __syncwarp();
    CopyTile(item, 0, block, rings_.k.Slot(copied_), full);
  }

  __device__ void CopyV(const PrefillItem& item, int token, int block) {
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
    char* tile_bytes = shared_ + Of::kVAt + copied_ % kPrefillSlots * Of::kTileBytes;
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
__device__ __forceinline__ void CopyQueries(const AttentionArgs& a, const PrefillItem& item,
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
    const PrefillItem item = rings.item[i % kItemSlots];
    rings.items.Empty(i).Arrive();
    if (item.head < 0) return;
    rings.q.WaitEmpty(i);
    CopyQueries<T, H>(a, item, rings.q.Slot(i));
    FenceForProducts();
    rings.q.Full(i).Arrive();
  }
}

}  // namespace quire::cuda

// Prefill attention by products of warpgroups: causal softmax(q K^T * scale) V for sequences with
// more queries than the decode kernel takes. 4 D FLOP a head for every pair of query and visible
// key, bound by the tensor cores.
//
// A CTA stays on its multiprocessor and draws items: a tile of 128 rows (row = query * G + head in
// its group) of one key/value head. Its first warpgroup supplies the two others. Warp 0 draws items
// and starts the copies of K and V, 128 tokens at a time, one box a block of the table; warps 1 to
// 3 copy the next item's queries. The two other warpgroups, the consumers, have 64 rows each. They
// take turns in issuing products, so the tensor cores work for one while the other turns scores
// into weights. A turn is the scores of a tile and the values of the tile before it.
//
// Tiles come in the order of their positions, and tokens that a row does not see change nothing. So
// a row's bits depend on its position alone.
//
// On an H200 a consumer takes 2750 cycles a tile at D = 128: products 1024, tops 500, exponentials
// and packing 1100. In that time the tensor cores work 2048 cycles for both. The work between two
// turns is the bound, not memory: 96 % of the reads hit the second-level cache.
#include <algorithm>
#include <climits>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/warpgroup.cuh"

namespace quire::cuda {
namespace {

constexpr int kGroupThreads = 128, kGroups = 2;  // of consumers
constexpr int kThreads = (1 + kGroups) * kGroupThreads;
constexpr int kQueryThreads = 96;
constexpr int kGroupRows = kPrefillRows / kGroups;
constexpr int kSlots = 2;  // of items, of K and of V

// A CTA's unit of work; head < 0 ends the CTA.
struct Item {
  PrefillTile tile;
  int head;
};

// Heads above 128 take half the tokens a turn and one slot of queries: so much do registers and
// shared memory hold.
template <int D>
struct Layout {
  static constexpr int kTokens = D > 128 ? 64 : 128;  // of a turn
  static constexpr int kQuerySlots = D > 128 ? 1 : 2;
  static constexpr int kSupplierRegisters = D > 128 ? 40 : 56;
  static constexpr int kConsumerRegisters = D > 128 ? 232 : 224;
  // The warpgroups share the registers that the launch gives the CTA. A request for more waits for
  // ever.
  static constexpr int kLaunchRegisters = (64 << 10) / kThreads / 8 * 8;
  static_assert(kGroupThreads * (kSupplierRegisters + kGroups * kConsumerRegisters) <=
                kThreads * kLaunchRegisters);
  static constexpr uint32_t kQueryPanel = kPrefillRows * kPanelRowBytes;
  static constexpr uint32_t kTokenPanel = kTokens * kPanelRowBytes;
  static constexpr uint32_t kQueryBytes = D / 64 * kQueryPanel;
  static constexpr uint32_t kTileBytes = D / 64 * kTokenPanel;  // of K, and of V
  static constexpr uint32_t kQAt = 0;
  static constexpr uint32_t kKAt = kQAt + kQuerySlots * kQueryBytes;
  static constexpr uint32_t kVAt = kKAt + kSlots * kTileBytes;
  static constexpr uint32_t kBarriersAt = kVAt + kSlots * kTileBytes;
  static constexpr uint32_t kItemsAt = kBarriersAt + 256;
  static constexpr uint32_t kSharedBytes = kItemsAt + kSlots * sizeof(Item);
};

// A ring of slots with a full and an empty barrier each. Use n of the ring has slot n % kCount.
template <int kCount = kSlots>
struct Ring {
  uint32_t barriers, slots;
  uint32_t slot_bytes;

  __device__ uint32_t Slot(uint32_t n) const { return slots + n % kCount * slot_bytes; }
  __device__ Barrier Full(uint32_t n) const { return {barriers + n % kCount * 8}; }
  __device__ Barrier Empty(uint32_t n) const { return {barriers + 16 + n % kCount * 8}; }
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

template <int D>
struct Rings {
  Ring<> items, k, v;
  Ring<Layout<D>::kQuerySlots> q;
  Barrier edge;
  Item* item;  // [kSlots]

  __device__ explicit Rings(char* shared) {
    const uint32_t base = SharedAddress(shared), barriers = base + Layout<D>::kBarriersAt;
    items = {barriers, base + Layout<D>::kItemsAt, sizeof(Item)};
    q = {barriers + 32, base + Layout<D>::kQAt, Layout<D>::kQueryBytes};
    k = {barriers + 64, base + Layout<D>::kKAt, Layout<D>::kTileBytes};
    v = {barriers + 96, base + Layout<D>::kVAt, Layout<D>::kTileBytes};
    edge = {barriers + 128};
    item = reinterpret_cast<Item*>(shared + Layout<D>::kItemsAt);
  }
  __device__ void Init() const {
    constexpr uint32_t kConsumerWarps = kGroups * 4;
    // Every thread that reads an item arrives. The compiler omits __syncwarp where a warp
    // converges, and then the race checker cannot see that one lane's arrival follows all reads.
    items.Init(1, kGroups * kGroupThreads + kQueryThreads);
    q.Init(kQueryThreads, kConsumerWarps);
    k.Init(1, kConsumerWarps);
    v.Init(1, kConsumerWarps);
    edge.Init(1);
    FenceBarriers();
  }
};

// Span: the tokens that an item's rows see, from a multiple of a turn's tokens on.
template <int kTokens>
struct Span {
  int begin, end;

  __device__ Span(const AttentionArgs& a, const PrefillTile& tile) {
    const int start = a.window > 0 ? max(a.EndFor(tile, 0) - a.window, 0) : 0;
    begin = start / kTokens * kTokens;
    end = a.EndFor(tile, kPrefillRows - 1);
  }
};

// Supplier, warp 0: draws items and starts the copies of their K and V.
template <int D>
class Supplier {
  static constexpr int kTokens = Layout<D>::kTokens;
  static constexpr uint32_t kPanelBytes = Layout<D>::kTokenPanel;

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
        CopyK(item, block);
        CopyV(item, token, block);
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

  __device__ void CopyK(const Item& item, int block) const {
    rings_.k.WaitEmpty(copied_);
    const Barrier full = rings_.k.Full(copied_);
    if (lane_ == 0) full.ArriveExpecting(Layout<D>::kTileBytes);
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
    if (lane_ == 0) full.ArriveExpecting(Layout<D>::kTileBytes);
    __syncwarp();
    CopyTile(item, 1, block, slot, full);
    if (!is_edge) return;
    full.Wait(edges_++);
    char* tile_bytes = shared_ + Layout<D>::kVAt + copied_ % kSlots * Layout<D>::kTileBytes;
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
  const Rings<D> rings_;
  const int lane_;
  uint32_t copied_ = 0;  // tiles of K and V
  uint32_t edges_ = 0;
};

// Warps 1 to 3: copy the items' queries. Rows past the last are zero.
template <typename T, typename H, int D = H::kDim>
__device__ void SupplyQueries(const AttentionArgs& a, char* shared) {
  const Rings<D> rings(shared);
  constexpr int kVectors = D / 8;
  for (uint32_t i = 0;; ++i) {
    rings.items.WaitFull(i);
    const Item item = rings.item[i % kSlots];
    rings.items.Empty(i).Arrive();
    if (item.head < 0) return;
    rings.q.WaitEmpty(i);
    const int num_rows = item.tile.num_queries * a.group;
    for (int at = threadIdx.x - 32; at < kPrefillRows * kVectors; at += kQueryThreads) {
      const int row = at / kVectors, vector = at % kVectors, of_tile = item.tile.first_row + row;
      const bool valid = of_tile < num_rows && H::Has(a, vector * 8);
      const int query = valid ? a.QueryOf(of_tile) : 0, in_group = valid ? a.InGroup(of_tile) : 0;
      const T* q = static_cast<const T*>(a.q) + (item.tile.query_begin + query) * a.q_stride +
                   (item.head * a.group + in_group) * H::Row(a) + vector * 8;
      const uint32_t panel = vector / 8 * Layout<D>::kQueryPanel;
      CopyAsync(rings.q.Slot(i) + panel + PanelOffset(row, vector % 8), q, valid);
    }
    CopyWait<0>();
    FenceForProducts();
    rings.q.Full(i).Arrive();
  }
}

// Sight: one past the last token that a thread's two rows see, and that its warpgroup's rows see.
template <int kTokens>
struct Sight {
  int end[2];
  int first_end, last_end;
  int window;  // INT_MAX: unlimited

  __device__ Sight(const AttentionArgs& a, const PrefillTile& tile, int group) {
    const int row =
        group * kGroupRows + threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4;
    end[0] = a.EndFor(tile, row);
    end[1] = a.EndFor(tile, row + 8);
    first_end = a.EndFor(tile, group * kGroupRows);
    last_end = a.EndFor(tile, group * kGroupRows + kGroupRows - 1);
    window = a.window > 0 ? a.window : INT_MAX;
  }

  __device__ __forceinline__ bool SeesAll(int token) const {
    return token + kTokens <= first_end && token >= last_end - window;
  }
  __device__ __forceinline__ void Mask(int token, float (&s)[kTokens / 8][4]) const {
#pragma unroll
    for (int b = 0; b < kTokens / 8; ++b) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = token + b * 8 + threadIdx.x % 4 * 2 + i % 2;
        if (t >= end[i / 2] || t < end[i / 2] - window) s[b][i] = -INFINITY;
      }
    }
  }
};

// Consumer: one of the two warpgroups that multiply.
template <typename T, typename H, bool kCapped>
class Consumer {
  static constexpr int D = H::kDim, kTokens = Layout<D>::kTokens;
  using RowSight = Sight<kTokens>;

 public:
  __device__ Consumer(const AttentionArgs& a, char* shared)
      : a_(a),
        shared_(shared),
        rings_(shared),
        group_(threadIdx.x / kGroupThreads - 1),
        warp_(threadIdx.x % kGroupThreads / 32),
        lane_(threadIdx.x % 32) {}

  __device__ void Run() {
    if (group_ == 1) ArriveNamed(kTurn, 2 * kGroupThreads);  // the first turn is group 0's
    for (uint32_t i = 0;; ++i) {
      rings_.items.WaitFull(i);
      const Item item = rings_.item[i % kSlots];
      rings_.items.Empty(i).Arrive();
      if (item.head < 0) return;
      TakeItem(item, i);
    }
  }

 private:
  static constexpr int kTurn = 1, kWithin = kTurn + kGroups;  // named barriers, one a group each
  static constexpr int kSteps = kTokens / 16;
  using Scores = float[kTokens / 8][4];

  // A warpgroup's registers: 64 scores, 64 sums and 32 weights a thread at D = 128; 32, 128 and 16
  // at D = 256.
  struct Work {
    Scores s;
    RunningRows<D> rows;
    uint32_t p[kSteps][4];
  };

  __device__ __forceinline__ void TakeItem(const Item& item, uint32_t i) {
    const Span<kTokens> span(a_, item.tile);
    const RowSight sight(a_, item.tile, group_);
    Work w;
    w.rows.Reset();
    rings_.q.WaitFull(i);
    const TileOperand q(rings_.q.Slot(i) + group_ * kGroupRows * kPanelRowBytes);
    TakeFirst(q, span.begin, sight, w);
#pragma unroll 1
    for (int token = span.begin + kTokens; token < span.end; token += kTokens) {
      if (sight.SeesAll(token)) {
        TakeNext<false>(q, token, sight, w);
      } else {
        TakeNext<true>(q, token, sight, w);
      }
    }
    rings_.v.WaitFull(taken_);
    ProductsFence();
    StartValues(taken_, w);
    ProductsWait<0>();
    Settle(w.rows.o);
    Release(rings_.v, taken_++);
    Store(item, i, w.rows);
  }

  __device__ __forceinline__ void TakeFirst(const TileOperand& q, int token, const RowSight& sight,
                                            Work& w) {
    rings_.k.WaitFull(taken_);
    ProductsFence();
    StartScores(q, taken_, w.s);
    ProductsWait<0>();
    Settle(w.s);
    Release(rings_.k, taken_);
    if constexpr (kCapped) CapScores(w.s, a_.cap_factor, a_.cap_log2);
    if (!sight.SeesAll(token)) sight.Mask(token, w.s);
    float factor[2];
    w.rows.RaiseTop(w.s, a_.scale_log2, factor);
    w.rows.Weigh(w.s, a_.scale_log2);
    PackAll(w);
  }

  // The scores of a tile and the values of the tile before it. No branch stands between the fence
  // and the last wait: with one, the compiler would wait for each product.
  template <bool kMasked>
  __device__ __forceinline__ void TakeNext(const TileOperand& q, int token, const RowSight& sight,
                                           Work& w) {
    // Asks for both barriers before it waits for one.
    const bool has_v = rings_.v.IsFull(taken_), has_k = rings_.k.IsFull(taken_ + 1);
    if (!has_v) rings_.v.WaitFull(taken_);
    if (!has_k) rings_.k.WaitFull(taken_ + 1);
    SyncNamed(kTurn + group_, 2 * kGroupThreads);
    ProductsFence();
    StartScores(q, taken_ + 1, w.s);
    StartValues(taken_, w);
    ArriveNamed(kTurn + (group_ ^ 1), 2 * kGroupThreads);
    ProductsWait<1>();
    Settle(w.s);
    Release(rings_.k, taken_ + 1);
    if constexpr (kCapped) CapScores(w.s, a_.cap_factor, a_.cap_log2);
    if constexpr (kMasked) sight.Mask(token, w.s);
    // The tops are found during the products of the values. The exponentials, which take the most
    // time, overlap the packing.
    float factor[2];
    w.rows.RaiseTop(w.s, a_.scale_log2, factor);
    ProductsWait<0>();
    Settle(w.rows.o);
    Release(rings_.v, taken_++);
    w.rows.Scale(factor);
    w.rows.Weigh(w.s, a_.scale_log2);
    PackAll(w);
  }

  template <int kCount>
  __device__ __forceinline__ void Release(const Ring<kCount>& ring, uint32_t n) const {
    ring.Empty(n).ArriveIf(lane_ == 0);
  }

  __device__ __forceinline__ void StartScores(const TileOperand& q, uint32_t n, Scores& s) const {
    const TileOperand k(rings_.k.Slot(n));
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      const uint32_t panel = d / 4, at = d % 4 * 32;
      ProductOfTiles<T>(s, q.At(panel * Layout<D>::kQueryPanel + at),
                        k.At(panel * Layout<D>::kTokenPanel + at), d > 0);
    }
    ProductsCommit();
  }

  __device__ __forceinline__ void StartValues(uint32_t n, Work& w) const {
    const TileOperand v(rings_.v.Slot(n), Layout<D>::kTokenPanel);
#pragma unroll
    for (int t = 0; t < kSteps; ++t) {
      ProductOfFragments<T>(w.rows.o, w.p[t], v.At(t * 16 * kPanelRowBytes));
    }
    ProductsCommit();
  }

  __device__ __forceinline__ static void PackAll(Work& w) {
#pragma unroll
    for (int t = 0; t < kSteps; ++t) PackWeights<T>(w.s, t, w.p[t]);
  }

  // Stores an item through the queries' place in shared memory, in vectors of 16 bytes.
  __device__ __forceinline__ void Store(const Item& item, uint32_t i, const RunningRows<D>& rows) {
    constexpr uint32_t kPanel = Layout<D>::kQueryPanel;
    char* q = shared_ + Layout<D>::kQAt + i % Layout<D>::kQuerySlots * Layout<D>::kQueryBytes;
    const int first = group_ * kGroupRows + warp_ * 16;
    SyncNamed(kWithin + group_, kGroupThreads);  // all warps of the group have read the queries
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float inverse = Reciprocal(QuadSum(rows.sum[half]));
      const int row = first + lane_ / 4 + 8 * half;
#pragma unroll
      for (int b = 0; b < D / 8; ++b) {
        *reinterpret_cast<uint32_t*>(q + b / 8 * kPanel + PanelOffset(row, b % 8) + lane_ % 4 * 4) =
            Pack<T>(rows.o[b][2 * half] * inverse, rows.o[b][2 * half + 1] * inverse);
      }
    }
    __syncwarp();
    constexpr int kVectors = D / 8;
    const int num_rows = item.tile.num_queries * a_.group, vector = lane_ % kVectors;
#pragma unroll 4
    for (int row = first + lane_ / kVectors; row < first + 16; row += 32 / kVectors) {
      const int of_tile = item.tile.first_row + row;
      if (of_tile >= num_rows || !H::Has(a_, vector * 8)) break;
      T* out = static_cast<T*>(a_.out) +
               (item.tile.query_begin + a_.QueryOf(of_tile)) * a_.out_stride +
               (item.head * a_.group + a_.InGroup(of_tile)) * H::Row(a_) + vector * 8;
      *reinterpret_cast<uint4*>(out) =
          *reinterpret_cast<const uint4*>(q + vector / 8 * kPanel + PanelOffset(row, vector % 8));
    }
    __syncwarp();
    Release(rings_.q, i);
  }

  const AttentionArgs& a_;
  char* const shared_;
  const Rings<D> rings_;
  const int group_, warp_, lane_;
  uint32_t taken_ = 0;  // tiles of K and V
};

template <typename T, typename H, bool kCapped>
__global__ __launch_bounds__(kThreads,
                             1) void PrefillKernel(const __grid_constant__ AttentionArgs a,
                                                   const __grid_constant__ CUtensorMap map) {
  constexpr int D = H::kDim;
  extern __shared__ __align__(1024) char shared[];
  if (threadIdx.x == 0) Rings<D>(shared).Init();
  __syncthreads();
  PdlWait();
  PdlTrigger();
  if (threadIdx.x < kGroupThreads) {
    GiveRegisters<Layout<D>::kSupplierRegisters>();
    if (threadIdx.x < 32) {
      Supplier<D>(a, map, shared).Run();
    } else {
      SupplyQueries<T, H>(a, shared);
    }
  } else {
    TakeRegisters<Layout<D>::kConsumerRegisters>();
    Consumer<T, H, kCapped>(a, shared).Run();
  }
}

// Describes the layer's K and V as [block][K or V][head][token][column]. A box is 64 columns of a
// block's tokens of one head.
CUtensorMap DescribePool(const KvLayerView& kv) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                cudaEnableDefault, &found));
    CHECK(found == cudaDriverEntryPointSuccess);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  const auto bytes = [](int64_t elements) { return static_cast<cuuint64_t>(elements * 2); };
  const cuuint64_t dims[5] = {
      static_cast<cuuint64_t>(kv.head_dim), static_cast<cuuint64_t>(kv.block_size),
      static_cast<cuuint64_t>(kv.num_kv_heads), 2, static_cast<cuuint64_t>(kv.num_blocks)};
  const cuuint64_t strides[4] = {bytes(kv.head_dim), bytes(kv.head_stride), bytes(kv.kv_stride),
                                 bytes(kv.block_stride)};
  const cuuint32_t box[5] = {kPanelColumns, static_cast<cuuint32_t>(kv.block_size), 1, 1, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode(
      &map,
      kv.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      5, kv.base, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(result == CUDA_SUCCESS);
  return map;
}

template <typename T, typename H, bool kCapped>
void LaunchTyped(const PagedAttentionParams& p, const AttentionArgs& args, int64_t max_items,
                 const Device& device) {
  constexpr uint32_t kBytes = Layout<H::kDim>::kSharedBytes;
  static_assert(kBytes + 1024 <= 228 << 10);
  AllowShared<PrefillKernel<T, H, kCapped>, kBytes>();
  const auto ctas = static_cast<uint32_t>(std::min<int64_t>(device.num_sms, max_items));
  Launch(device, {.blocks = ctas, .threads = kThreads, .shared_bytes = kBytes},
         PrefillKernel<T, H, kCapped>, args, DescribePool(p.kv));
}

}  // namespace

void LaunchPrefill(const PagedAttentionParams& p, const AttentionArgs& args, int64_t max_tiles,
                   const Device& device) {
  const int64_t max_items = max_tiles * args.num_kv_heads;
  DispatchHalf(p.kv.dtype, [&](auto tag) {
    using T = decltype(tag);
    DispatchHead(p.kv.head_dim, args.cap_log2 > 0, [&](auto head, auto capped) {
      LaunchTyped<T, decltype(head), capped.value>(p, args, max_items, device);
    });
  });
}

}  // namespace quire::cuda

// Prefill attention by products of warpgroups: causal softmax(q K^T * scale) V for sequences with
// more queries than the decode kernel takes. 4 D FLOP a head for every pair of query and visible
// key, bound by the tensor cores.
//
// A CTA stays on its multiprocessor and draws items: a tile of 128 rows (row = query * G + head in
// its group) of one key/value head. Its first warpgroup supplies the two others. Warp 0 draws items
// and starts the copies of K and V, 128 tokens at a time, one box a block of the table; warps 1 to
// 3 copy the next item's queries, and widen 8-bit K and V to f16 (prefill_widen.cuh). The two
// other warpgroups, the consumers, have 64 rows each. They take turns in issuing products, so the
// tensor cores work for one while the other turns scores into weights. A turn is the scores of a
// tile and the values of the tile before it.
//
// Tiles come in the order of their positions, and tokens that a row does not see change nothing. So
// a row's bits depend on its position alone, where the context is not cut into spans; there they
// depend on the borders of the spans too (prefill_plan.h).
//
// On an H200 a consumer takes 2750 cycles a tile at D = 128: products 1024, tops 500, exponentials
// and packing 1100. In that time the tensor cores work 2048 cycles for both. The work between two
// turns is the bound, not memory: 96 % of the reads hit the second-level cache.
#include <algorithm>
#include <climits>

#include "kernels/cuda/attention/attention_eight_bit.cuh"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/attention/prefill_layout.cuh"
#include "kernels/cuda/attention/prefill_states.cuh"
#include "kernels/cuda/attention/prefill_supply.cuh"
#include "kernels/cuda/attention/prefill_widen.cuh"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/device/warpgroup.cuh"
#include "kernels/cuda/device/warpgroup_product.cuh"

namespace quire::cuda {
namespace {

// Registers of a thread. Consumers of heads above 128 need the most, suppliers that widen more than
// others.
template <typename H>
struct Registers {
  static constexpr int kSupplier = H::kDim > 128 ? 40 : 56, kConsumer = H::kDim > 128 ? 232 : 224;
  // The warpgroups share what the launch gives the CTA. A request for more waits for ever.
  static constexpr int kOfLaunch = (64 << 10) / kPrefillThreads / 8 * 8;
  static_assert(kGroupThreads * (kSupplier + kGroups * kConsumer) <= kPrefillThreads * kOfLaunch);
};

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
  using Of = Layout<H>;
  static constexpr int D = H::kDim, kTokens = Of::kTokens;
  using RowSight = Sight<kTokens>;
  using In = Operand<T, H>;

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
      const PrefillItem& item = rings_.item[i % kItemSlots];  // registers are few
      if (item.head < 0) break;
      TakeItem(item, i);
      rings_.items.Empty(i).Arrive();
    }
    if (a_.space.num_tiles[1] != 0) FoldSpans<T, H>(a_, group_, kWithin + group_);
  }

 private:
  static constexpr int kTurn = 1, kWithin = kTurn + kGroups;  // named barriers, one a group each
  static constexpr int kSteps = kTokens / 16;
  using Scores = float[kTokens / 8][4];

  // A warpgroup's registers: 64 scores, 64 sums and 32 weights a thread at D = 128; 32, 128 and 16
  // at D = 256.
  struct Work {
    RowFactors factor;  // of the scores of 8-bit keys, before the cap if there is one
    Scores s;
    RunningRows<D> rows;
    uint32_t p[kSteps][4];
  };

  __device__ __forceinline__ void TakeItem(const PrefillItem& item, uint32_t i) {
    const RowSight sight(a_, item.tile, group_);
    Work w;
    rings_.q.WaitFull(i);
    SetFactor(i, w);
    const TileOperand q(rings_.q.Slot(i) + group_ * kGroupRows * kPanelRowBytes);
#pragma unroll 1
    for (int span = item.tile.first_span;; ++span) {
      TakeSpan(q, Span<kTokens>(a_, item.tile, span, 1), sight, w);
      if (item.tile.spans == 1) {
        Store(item, i, w.rows);
      } else {
        SpanStates<T, H>(a_, item, group_, kWithin + group_).Take(span, w.rows);
      }
      if (span + 1 == item.tile.first_span + item.tile.num_taken) break;
    }
    Release(rings_.q, i);
  }

  __device__ __forceinline__ void TakeSpan(const TileOperand& q, const Span<kTokens>& span,
                                           const RowSight& sight, Work& w) {
    w.rows.Reset();
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
  }

  __device__ __forceinline__ void SetFactor(uint32_t i, Work& w) const {
    if constexpr (H::kEightBitKv) {
      const float* of_rows = rings_.FactorsOf(i) + group_ * kGroupRows + warp_ * 16 + lane_ / 4;
      const float common = kCapped ? a_.cap_factor : a_.scale_log2;
      w.factor = {{common * of_rows[0], common * of_rows[8]}};
    }
  }
  // The factors of scores before the cap, and of those that go into the softmax.
  __device__ __forceinline__ auto CapFactor(const Work& w) const {
    if constexpr (H::kEightBitKv) {
      return w.factor;
    } else {
      return a_.cap_factor;
    }
  }
  __device__ __forceinline__ auto ScaleLog2(const Work& w) const {
    if constexpr (H::kEightBitKv && !kCapped) {
      return w.factor;
    } else {
      return a_.scale_log2;
    }
  }

  __device__ __forceinline__ void TakeFirst(const TileOperand& q, int token, const RowSight& sight,
                                            Work& w) {
    rings_.k.WaitFull(taken_);
    ProductsFence();
    StartScores(q, taken_, w.s);
    ProductsWait<0>();
    Settle(w.s);
    Release(rings_.k, taken_);
    Bound<true>(token, sight, w);
    float factor[2];
    w.rows.RaiseTop(w.s, ScaleLog2(w), factor);
    w.rows.Weigh(w.s, ScaleLog2(w));
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
    Bound<kMasked>(token, sight, w);
    // The tops are found during the products of the values. The exponentials, which take the most
    // time, overlap the packing.
    float factor[2];
    w.rows.RaiseTop(w.s, ScaleLog2(w), factor);
    ProductsWait<0>();
    Settle(w.rows.o);
    Release(rings_.v, taken_++);
    w.rows.Scale(factor);
    w.rows.Weigh(w.s, ScaleLog2(w));
    PackAll(w);
  }

  // Caps the scores of visible tokens, and hides the others. A cap makes hidden ones finite.
  template <bool kMasked>
  __device__ __forceinline__ void Bound(int token, const RowSight& sight, Work& w) const {
    const bool masks = kMasked && !sight.SeesAll(token);
    if (kCapped && masks) sight.Mask(token, w.s);
    if constexpr (kCapped) CapScores(w.s, CapFactor(w), a_.cap_log2);
    if (masks) sight.Mask(token, w.s);
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
      ProductOfTiles<In>(s, q.At(panel * Of::kQueryPanel + at), k.At(panel * Of::kTokenPanel + at),
                         d > 0);
    }
    ProductsCommit();
  }

  __device__ __forceinline__ void StartValues(uint32_t n, Work& w) const {
    const TileOperand v(rings_.v.Slot(n), Of::kTokenPanel);
#pragma unroll
    for (int t = 0; t < kSteps; ++t) {
      ProductOfFragments<In>(w.rows.o, w.p[t], v.At(t * 16 * kPanelRowBytes));
    }
    ProductsCommit();
  }

  __device__ __forceinline__ static void PackAll(Work& w) {
#pragma unroll
    for (int t = 0; t < kSteps; ++t) PackWeights<In>(w.s, t, w.p[t]);
  }

  // Stores an item through the queries' place in shared memory, in vectors of 16 bytes.
  __device__ __forceinline__ void Store(const PrefillItem& item, uint32_t i,
                                        const RunningRows<D>& rows) {
    constexpr uint32_t kPanel = Of::kQueryPanel;
    char* q = shared_ + Of::kQAt + i % Of::kQuerySlots * Of::kQueryBytes;
    const int first = group_ * kGroupRows + warp_ * 16;
    SyncNamed(kWithin + group_, kGroupThreads);  // all warps of the group have read the queries
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float inverse = Reciprocal(QuadSum(rows.sum[half])) * ValueScale<H>(a_, item.head);
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
  }

  const AttentionArgs& a_;
  char* const shared_;
  const Rings<H> rings_;
  const int group_, warp_, lane_;
  uint32_t taken_ = 0;  // tiles of K and V
};

template <typename T, typename H, bool kCapped>
__global__ __launch_bounds__(kPrefillThreads,
                             1) void PrefillKernel(const __grid_constant__ AttentionArgs a,
                                                   const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) char shared[];
  if (threadIdx.x == 0) Rings<H>(shared).Init();
  __syncthreads();
  PdlWait();
  PdlTrigger();
  if (threadIdx.x < kGroupThreads) {
    GiveRegisters<Registers<H>::kSupplier>();
    if (threadIdx.x < 32) {
      Supplier<H>(a, map, shared).Run();
    } else if constexpr (H::kEightBitKv) {
      Widener<T, H>(a, shared).Run();
    } else {
      SupplyQueries<T, H>(a, shared);
    }
  } else {
    TakeRegisters<Registers<H>::kConsumer>();
    Consumer<T, H, kCapped>(a, shared).Run();
  }
}

// Describes the layer's K and V as [block][K or V][head][token][column]. A box is 64 columns of a
// block's tokens of one head; of 8-bit ones `row` columns, as they lie in memory.
CUtensorMap DescribePool(const KvLayerView& kv, uint32_t row) {
  const bool eight_bit = kv.dtype == DType::kE4M3;
  const int64_t dims[] = {kv.head_dim, kv.block_size, kv.num_kv_heads, 2, kv.num_blocks};
  const int64_t strides[] = {kv.head_dim, kv.head_stride, kv.kv_stride, kv.block_stride};
  const uint32_t box[] = {eight_bit ? row : kPanelColumns, static_cast<uint32_t>(kv.block_size), 1,
                          1, 1};
  return DescribeTensor({.base = kv.base,
                         .dtype = kv.dtype,
                         .dims = dims,
                         .strides = strides,
                         .box = box,
                         .swizzled = !eight_bit});
}

template <typename T, typename H, bool kCapped>
void LaunchTyped(const PagedAttentionParams& p, const AttentionArgs& args, int64_t max_items,
                 const Device& device) {
  constexpr uint32_t kBytes = Layout<H>::kSharedBytes;
  static_assert(kBytes + 1024 <= 228 << 10);
  AllowShared<PrefillKernel<T, H, kCapped>, kBytes>();
  const auto ctas = static_cast<uint32_t>(std::min<int64_t>(device.num_sms, max_items));
  Launch(device, {.blocks = ctas, .threads = kPrefillThreads, .shared_bytes = kBytes},
         PrefillKernel<T, H, kCapped>, args, DescribePool(p.kv, H::kDim));
}

}  // namespace

void LaunchPrefill(const PagedAttentionParams& p, const AttentionArgs& args, int64_t max_tiles,
                   const Device& device) {
  const int64_t max_items = max_tiles * args.num_kv_heads;
  DispatchHalf(p.q.dtype, [&](auto tag) {
    using T = decltype(tag);
    DispatchHead(p.kv, args.cap_log2 > 0, [&](auto head, auto capped) {
      LaunchTyped<T, decltype(head), capped.value>(p, args, max_items, device);
    });
  });
}

}  // namespace quire::cuda

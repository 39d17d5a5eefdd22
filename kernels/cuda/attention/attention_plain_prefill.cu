// Prefill attention by mma.sync, the reference that the tests compare attention_prefill.cu with:
// causal softmax(q K^T * scale) V for sequences with more queries than the decode kernel takes. 4 D
// FLOP a head for every pair of query and visible key; bound by mma.sync, which reaches 310 TFLOP/s
// here.
//
// A tile is 128 rows, row = query * G + head in its group, so that K and V are read once for all
// heads of a group. Four warps of 32 rows take 64 tokens at a time in the order of their positions.
// The 32 rows of a warp share each fragment of K and V; otherwise shared memory would be the bound.
// A row's bits depend on its position alone: tokens that it does not see change nothing, so the
// borders of tiles and of prompt chunks change nothing.
#include <algorithm>
#include <climits>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_tile.cuh"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTokens = 64;  // of a step of the loop
constexpr int kStages = 2;
constexpr int kBlocks = kTokens / 16;  // at most, of the table

template <int D>
struct Sizes {
  static constexpr uint32_t kQBytes = kPrefillRows * D * 2;
  static constexpr uint32_t kTileBytes = kTokens * D * 2;  // of K; V has as many
  static constexpr uint32_t kStageBytes = 2 * kTileBytes;
  static constexpr uint32_t kHighAt = kQBytes + kStages * kStageBytes;
  static constexpr uint32_t kBlocksAt = kHighAt + kPrefillRows * 4;
  static constexpr uint32_t kSharedBytes = kBlocksAt + kStages * kBlocks * 4;
};

// A thread's share in a copy of rows of D elements: one vector of each of the rows row + i * kRows.
template <int D>
struct CopyShape {
  static constexpr int kVectors = D / 8;
  static constexpr int kRows = kThreads / kVectors;
  const int row = threadIdx.x / kVectors, vector = threadIdx.x % kVectors;
};

// TileLoader: copies tiles of 64 tokens of a head into stages. It looks up a tile's blocks one tile
// earlier, by asynchronous copies too, so that they take no registers.
template <typename T, int D>
class TileLoader {
 public:
  // `blocks`: [kStages][kBlocks] in shared memory.
  __device__ TileLoader(const AttentionArgs& a, const PrefillTile& tile, int head, int start,
                        int* blocks)
      : a_(a),
        table_(a.block_table + tile.table_row * a.table_stride),
        kv_(static_cast<const T*>(a.kv) + head * a.head_stride),
        start_(start),
        context_(tile.context),
        blocks_(blocks) {}

  __device__ void LookUp(int token, int stage) const {
    const int b = static_cast<int>(threadIdx.x);
    if (b >= kBlocks) return;
    const int last = (context_ - 1) >> a_.block_shift;
    CopyAsync4(SharedAddress(blocks_ + stage * kBlocks + b),
               table_ + min((token + 16 * b) >> a_.block_shift, last));
  }

  __device__ void Copy(int token, int stage, uint32_t to_stage) const {
    const CopyShape<D> shape;
    constexpr int kCopies = kTokens / CopyShape<D>::kRows;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int row = shape.row + i * CopyShape<D>::kRows;
      const int64_t block = blocks_[stage * kBlocks + i * kBlocks / kCopies];
      const int in_block = (token + row) & ((1 << a_.block_shift) - 1);
      const T* k = kv_ + block * a_.block_stride + in_block * D + shape.vector * 8;
      // Slots that no query sees may hold anything, even NaN. They are read as zeros.
      const bool valid = token + row >= start_ && token + row < context_;
      const uint32_t to = to_stage + SwizzledOffset<D>(row, shape.vector);
      CopyAsync(to, k, valid);
      CopyAsync(to + Sizes<D>::kTileBytes, k + a_.kv_stride, valid);
    }
  }

 private:
  const AttentionArgs& a_;
  const int32_t* table_;
  const T* kv_;
  const int start_, context_;
  int* const blocks_;
};

// Copies a tile's queries. Rows past the last are zero.
template <typename T, int D>
__device__ void CopyQueries(const AttentionArgs& a, const PrefillTile& tile, int head,
                            uint32_t to) {
  const CopyShape<D> shape;
  const int num_rows = tile.num_queries * a.group;
#pragma unroll 4
  for (int row = shape.row; row < kPrefillRows; row += CopyShape<D>::kRows) {
    const int of_tile = tile.first_row + row;
    const bool valid = of_tile < num_rows;
    const int query = valid ? a.QueryOf(of_tile) : 0, in_group = valid ? a.InGroup(of_tile) : 0;
    const T* q = static_cast<const T*>(a.q) + (tile.query_begin + query) * a.q_stride +
                 (head * a.group + in_group) * D + shape.vector * 8;
    CopyAsync(to + SwizzledOffset<D>(row, shape.vector), q, valid);
  }
}

// Sight: the tokens that a tile's rows see, [high - window, high).
struct Sight {
  int* high;            // [kPrefillRows], in shared memory because few iterations need it
  int window;           // INT_MAX: unlimited
  int first_high, end;  // of the first row and of the last

  // By all threads, before a barrier.
  __device__ void Set(const AttentionArgs& a, const PrefillTile& tile) {
    window = a.window > 0 ? a.window : INT_MAX;
    first_high = HighOf(a, tile, 0);
    end = HighOf(a, tile, kPrefillRows - 1);
    for (int row = threadIdx.x; row < kPrefillRows; row += kThreads) {
      high[row] = HighOf(a, tile, row);
    }
  }

 private:
  // Rows past the last see what the last sees.
  __device__ static int HighOf(const AttentionArgs& a, const PrefillTile& tile, int row) {
    return tile.context - tile.num_queries + 1 +
           min(a.QueryOf(tile.first_row + row), tile.num_queries - 1);
  }
};

// A warp's 32 rows as two blocks of 16.
template <typename T, int D>
struct WarpRows {
  // Tokens whose scores a warp holds at once: with D = 128, its 128 accumulators of the output
  // leave registers for 32.
  static constexpr int kStep = D == 128 ? 32 : 64;
  using Scores = float[2][kStep / 8][4];

  RunningRows<D> of[2];

  __device__ __forceinline__ void Take(uint32_t q, uint32_t stage, const Sight& sight, int token,
                                       float scale_log2) {
    Scores s = {};
    Score(q, stage, s);
    if (token + kStep > sight.first_high || token < sight.end - sight.window) {
      Mask(sight, token, s);
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) of[m].TakeScores(s[m], scale_log2);
    TakeValues(stage + Sizes<D>::kTileBytes, s);
  }

  __device__ __forceinline__ static void Score(uint32_t q, uint32_t k, Scores& s) {
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        LoadMatrices(a[m], (q ^ VectorPair(d)) + 16 * m * D * 2);
      }
#pragma unroll
      for (int t = 0; t < kStep / 16; ++t) {
        uint32_t b[4];
        LoadMatrices(b, (k ^ VectorPair(d)) + 16 * t * D * 2);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          MultiplyAdd<T>(s[m][2 * t], a[m], b[0], b[2]);
          MultiplyAdd<T>(s[m][2 * t + 1], a[m], b[1], b[3]);
        }
      }
    }
  }

  __device__ __forceinline__ static void Mask(const Sight& sight, int token, Scores& s) {
    const int row = threadIdx.x / 32 * 32 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int high = sight.high[row + 8 * r], low = high - sight.window;
#pragma unroll
      for (int i = 0; i < kStep / 4; ++i) {
        const int t = token + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
        if (t >= high || t < low) s[r / 2][i / 2][r % 2 * 2 + i % 2] = -INFINITY;
      }
    }
  }

  __device__ __forceinline__ void TakeValues(uint32_t v, const Scores& s) {
#pragma unroll
    for (int t = 0; t < kStep / 16; ++t) {
      uint32_t p[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) PackWeights<T>(s[m], t, p[m]);
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        uint32_t b[4];
        LoadMatricesTransposed(b, (v ^ VectorPair(d)) + 16 * t * D * 2);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          MultiplyAdd<T>(of[m].o[2 * d], p[m], b[0], b[1]);
          MultiplyAdd<T>(of[m].o[2 * d + 1], p[m], b[2], b[3]);
        }
      }
    }
  }

  // Normalises the rows and writes them to the warp's rows of shared memory.
  __device__ __forceinline__ void Put(char* rows) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float inverse = Reciprocal(QuadSum(of[m].sum[h]));
        const int row = 16 * m + 8 * h + lane / 4;
#pragma unroll
        for (int b = 0; b < D / 8; ++b) {
          *reinterpret_cast<uint32_t*>(rows + SwizzledOffset<D>(row, b) + lane % 4 * 4) =
              Pack<T>(of[m].o[b][2 * h] * inverse, of[m].o[b][2 * h + 1] * inverse);
        }
      }
    }
  }
};

// Stores a warp's 32 rows from shared memory.
template <typename T, int D>
__device__ void StoreRows(const AttentionArgs& a, const PrefillTile& tile, int head,
                          const char* rows) {
  constexpr int kVectors = D / 8;
  const int lane = threadIdx.x % 32, first = tile.first_row + threadIdx.x / 32 * 32;
  const int num_rows = tile.num_queries * a.group;
#pragma unroll 4
  for (int row = lane / kVectors; row < 32; row += 32 / kVectors) {
    const int of_tile = first + row;
    if (of_tile >= num_rows) return;
    T* out = static_cast<T*>(a.out) + (tile.query_begin + a.QueryOf(of_tile)) * a.out_stride +
             (head * a.group + a.InGroup(of_tile)) * D + lane % kVectors * 8;
    *reinterpret_cast<uint4*>(out) =
        *reinterpret_cast<const uint4*>(rows + SwizzledOffset<D>(row, lane % kVectors));
  }
}

template <typename T, int D>
__device__ void TakeItem(const AttentionArgs& a, const PrefillTile& tile, int head, char* shared) {
  const uint32_t q = SharedAddress(shared), stages = q + Sizes<D>::kQBytes;
  Sight sight{reinterpret_cast<int*>(shared + Sizes<D>::kHighAt)};
  sight.Set(a, tile);
  const int start = max(sight.first_high - sight.window, 0);
  const int begin = start / kTokens * kTokens;
  const TileLoader<T, D> loader(a, tile, head, start,
                                reinterpret_cast<int*>(shared + Sizes<D>::kBlocksAt));
  loader.LookUp(begin, 0);
  CopyQueries<T, D>(a, tile, head, q);
  CopyWait<0>();
  __syncthreads();
  loader.Copy(begin, 0, stages);
  loader.LookUp(begin + kTokens, 1);

  const uint32_t warp = threadIdx.x / 32, warp_q = warp * 32 * D * 2;
  const uint32_t q_fragments = FragmentAddress<D>(q + warp_q);
  WarpRows<T, D> rows;
  rows.of[0].Reset();
  rows.of[1].Reset();
  int stage = 0;
  for (int token = begin; token < sight.end; token += kTokens, stage ^= 1) {
    CopyWait<0>();
    __syncthreads();  // all copies of this stage have ended, and all reads of the other
    if (token + kTokens < sight.end) {
      loader.Copy(token + kTokens, stage ^ 1, stages + (stage ^ 1) * Sizes<D>::kStageBytes);
      loader.LookUp(token + 2 * kTokens, stage);
    }
    const uint32_t fragments = FragmentAddress<D>(stages + stage * Sizes<D>::kStageBytes);
#pragma unroll 1
    for (int t = 0; t < kTokens && token + t < sight.end; t += WarpRows<T, D>::kStep) {
      rows.Take(q_fragments, fragments + t * D * 2, sight, token + t, a.scale_log2);
    }
  }
  // Only this warp has read its queries, so it may overwrite them.
  __syncwarp();
  rows.Put(shared + warp_q);
  __syncwarp();
  StoreRows<T, D>(a, tile, head, shared + warp_q);
}

template <typename T, int D>
__global__ __launch_bounds__(kThreads,
                             2) void PrefillKernel(const __grid_constant__ AttentionArgs a) {
  extern __shared__ __align__(1024) char shared[];
  __shared__ uint32_t ticket;
  PdlWait();
  PdlTrigger();
  const uint32_t items = *a.space.num_tiles * a.num_kv_heads;
  while (true) {
    // Each CTA draws one ticket too many; the last ticket of all resets the count.
    if (threadIdx.x == 0) ticket = atomicInc(a.space.tickets, items + gridDim.x - 1);
    __syncthreads();
    const uint32_t item = ticket;
    __syncthreads();
    if (item >= items) return;
    TakeItem<T, D>(a, a.space.tiles[item / a.num_kv_heads], item % a.num_kv_heads, shared);
  }
}

template <typename T, int D>
void LaunchTyped(const AttentionArgs& args, int64_t max_items, const Device& device) {
  AllowShared<PrefillKernel<T, D>, Sizes<D>::kSharedBytes>();
  const auto ctas = static_cast<uint32_t>(std::min<int64_t>(2 * device.num_sms, max_items));
  Launch(device, {.blocks = ctas, .threads = kThreads, .shared_bytes = Sizes<D>::kSharedBytes},
         PrefillKernel<T, D>, args);
}

}  // namespace

void LaunchPlainPrefill(const PagedAttentionParams& p, const AttentionArgs& args, int64_t max_tiles,
                        const Device& device) {
  const int64_t max_items = max_tiles * args.num_kv_heads;
  DispatchHalf(p.kv.dtype, [&](auto tag) {
    using T = decltype(tag);
    p.kv.head_dim == 128 ? LaunchTyped<T, 128>(args, max_items, device)
                         : LaunchTyped<T, 64>(args, max_items, device);
  });
}

}  // namespace quire::cuda

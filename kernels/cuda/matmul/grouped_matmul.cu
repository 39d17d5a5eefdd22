// out[t, r] = sum over groups of scale[r, group] * (sum over c of the group of x[t, c] * (w[r, c] -
// zero[r, group])), for at most 16 tokens at a time: a stream of n * k weights of 4 or 8 bits past
// a few activations, bound by one read of the weights.
//
// Matrix units take 16 rows of w as their first operand (a band) and 8 tokens as their second (a
// tile). A block owns a run of bands and goes over them in passes of a few. Within a pass the
// columns are cut into chunks of 128, which the warps take in turn; each warp sums its own chunks
// in registers, and the warps' sums are added in the order of the warps. Elements less their zeros
// are exact in the type of the matrix units, so the sum over a group's columns in a chunk is that
// of exact products; it is multiplied by the scale in float32.
//
// A warp's weights come through a ring of asynchronous copies, a band's part of a chunk with its
// scales and zeros in each slot, filled before PdlWait as in skinny_matmul.cu. Loads of matrices
// hand each lane the word with its columns.
#include <algorithm>
#include <type_traits>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/matmul/grouped_matmul.h"
#include "kernels/cuda/matmul/packed_weights.cuh"
#include "kernels/cuda/matmul/weight_passes.cuh"
#include "kernels/packed_row.h"

namespace quire::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kBandRows = 16;
constexpr int kTileTokens = 8;
constexpr int kMostTokens = 2 * kTileTokens;
// Of a pass, each of which reads the activations again; more take more registers than there are.
template <int kTiles>
constexpr int kMaxBands = kTiles == 1 ? 4 : 3;
constexpr int kChunk = 128;  // columns
constexpr int kSpans = kChunk / kPackedColumns;
// Groups that begin in a chunk, at most, with a scale and a zero for each row of a band.
constexpr int kMaxGroups = kChunk / 32;
constexpr int kScaleBytes = kMaxGroups * kBandRows * 4;
constexpr int kZeroBytes = kMaxGroups * kBandRows;

// A unit is a band's part of a chunk. Copies fill it by quarters of a warp; the vectors of eight
// rows at the same columns lie in 128 bytes, in an order in which neither the copies of a quarter
// nor the load of a matrix meet in a bank.
template <int kBits>
struct UnitOf {
  static constexpr int kHalves = kBits / 4;  // runs of 64 bytes of a row
  static constexpr int kWeightBytes = kBandRows * kHalves * 64;
  static constexpr int kBytes = kWeightBytes + kScaleBytes + kZeroBytes;
  // At least 128 KB in flight to a multiprocessor.
  static constexpr int kSlots = kBits == 4 ? 16 : 9;
};
// Units in flight while a predecessor runs: few, because its own loads would queue behind them.
constexpr int kEarlySlots = 3;

constexpr int kExchanged = 2;    // sums of two tiles of a band, or of one tile of two bands
constexpr int kTokenPitch = 20;  // so that the rows and tokens of a store hit 32 banks
template <int kBits>
struct Shared {
  alignas(128) char rings[kWarps][UnitOf<kBits>::kSlots][UnitOf<kBits>::kBytes];
  float sums[kWarps][kExchanged][kTileTokens][kTokenPitch];
  uint32_t ended;  // 1: the predecessor has ended

  // The same answer in all lanes of a warp, which call it together.
  __device__ __forceinline__ bool PredecessorEnded() {
    return __any_sync(0xffffffffu, threadIdx.x % 32 == 0 && atomicOr(&ended, 0) != 0);
  }
};
static_assert(kExchanged * kTileTokens * kBandRows == kThreads);
// One block a multiprocessor, as of skinny_matmul.cu.
static_assert(2 * (sizeof(Shared<4>) + 1024) > 228 * 1024 && sizeof(Shared<4>) <= 227 * 1024);
static_assert(2 * (sizeof(Shared<8>) + 1024) > 228 * 1024 && sizeof(Shared<8>) <= 227 * 1024);

struct Product {
  const void* x;
  const uint8_t* w;
  const float* scales;
  const uint8_t* zeros;  // null: the middle of the range
  const void* bias;      // null: none
  void* out;
  int tokens, n, k;
  int group;        // columns that share a scale; at most k
  int group_spans;  // spans of 32 columns of a group, at most those of a chunk
  int64_t x_stride, w_bytes, scale_stride, out_stride;
};

// The place, in 16 bytes, of vector v (0 to 3) of row r (0 to 7) of 64 bytes of eight rows.
__device__ __forceinline__ int VectorPlace(int v, int r) { return v * 8 + (r + 2 * v) % 8; }

// One warp's words of 64 bytes of a unit's rows: [rows 0 to 7, rows 8 to 15][vectors].
struct Words {
  uint32_t at[2][4];
};

// One warp's weights in the order of use: pass by pass, chunk by chunk, band by band.
template <int kBits>
class WeightStream {
 public:
  using Unit = UnitOf<kBits>;

  // Fills the ring, a few units at a time until the predecessor has ended.
  __device__ WeightStream(const Product& p, const RowShare& share, Shared<kBits>& shared)
      : p_(p),
        share_(share),
        lane_(threadIdx.x % 32),
        ring_(SharedAddress(shared.rings[threadIdx.x / 32])),
        policy_(EvictFirst()),
        pass_(share),
        chunk_(threadIdx.x / 32) {
    if (chunk_ * kChunk >= p.k) pass_.begin = share.end;  // this warp has no chunk
#pragma unroll 1
    for (int i = 0; i < Unit::kSlots; ++i) {
      if (i >= kEarlySlots && !shared.PredecessorEnded()) CopyWait<kEarlySlots - 1>();
      Fetch();
    }
  }

  // Waits for the oldest unit; then the functions below read it until Fetch.
  __device__ __forceinline__ void Await() const {
    CopyWait<Unit::kSlots - 1>();
    __syncwarp();
  }
  __device__ __forceinline__ Words Weights(int half) const {
    Words words;
    const uint32_t from = Slot() + half * 1024 + VectorPlace(lane_ / 8, lane_ % 8) * 16;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t(&to)[4] = words.at[i];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(from + i * 512)
                   : "memory");
    }
    return words;
  }
  // Of a group of the chunk and a row of the band.
  __device__ __forceinline__ float Scale(int group, int row) const {
    float scale;
    asm volatile("ld.shared.f32 %0, [%1];"
                 : "=f"(scale)
                 : "r"(Slot() + Unit::kWeightBytes + (group * kBandRows + row) * 4)
                 : "memory");
    return scale;
  }
  __device__ __forceinline__ uint32_t Zero(int group, int row) const {
    if (p_.zeros == nullptr) return 1u << (kBits - 1);
    uint32_t zero;
    asm volatile("ld.shared.u8 %0, [%1];"
                 : "=r"(zero)
                 : "r"(Slot() + Unit::kWeightBytes + kScaleBytes + group * kBandRows + row)
                 : "memory");
    return zero;
  }
  // Starts the copy of the next unit, if any, to the slot of the oldest. Call it after the use of
  // the oldest.
  __device__ __forceinline__ void Fetch() {
    __syncwarp();  // every lane has read the slot
    if (pass_.begin < share_.end) {
      Copy();
      Advance();
    }
    CopyCommit();
    slot_ = slot_ == Unit::kSlots - 1 ? 0 : slot_ + 1;
  }

 private:
  __device__ __forceinline__ uint32_t Slot() const { return ring_ + slot_ * Unit::kBytes; }

  __device__ __forceinline__ void Copy() const {
    const uint32_t to = Slot();
    const int first_row = (pass_.begin + band_) * kBandRows;
    const int r = lane_ / 4, v = lane_ % 4;
    const int row_bytes = p_.k / 8 * kBits;
#pragma unroll
    for (int i = 0; i < 2 * Unit::kHalves; ++i) {
      // Rows past the last are read as the last row; their sums are never stored.
      const int row = min(first_row + i % 2 * 8 + r, p_.n - 1);
      const int at = (chunk_ * Unit::kHalves + i / 2) * 64 + v * 16;
      const bool within = at < row_bytes;
      CopyOnce(to + i * 512 + VectorPlace(v, r) * 16, p_.w + row * p_.w_bytes + (within ? at : 0),
               within ? 16 : 0, policy_);
    }
    CopyScales(to + Unit::kWeightBytes, first_row);
  }
  // Four lanes copy the scales of a group, one its zeros.
  __device__ __forceinline__ void CopyScales(uint32_t to, int first_row) const {
    const bool of_zeros = lane_ >= kMaxGroups * 4;
    const int group = of_zeros ? lane_ - kMaxGroups * 4 : lane_ / 4;
    const int column = chunk_ * kChunk + group * p_.group_spans * kPackedColumns;
    if (group * p_.group_spans >= kSpans) return;
    // Past the last column and the last row come zeros, so that no sum is a NaN.
    const bool within = column < p_.k;
    const int64_t at = (within ? column / p_.group * p_.scale_stride : 0) + first_row;
    if (!of_zeros) {
      const int quarter = lane_ % 4 * 4;
      const int rows = within ? min(max(p_.n - first_row - quarter, 0), 4) : 0;
      const float* const from = p_.scales + at + (rows > 0 ? quarter : 0);
      CopyOnce(to + (group * kBandRows + quarter) * 4, from, rows * 4, policy_);
    } else if (p_.zeros != nullptr) {
      const int rows = within ? min(p_.n - first_row, kBandRows) : 0;
      CopyOnce(to + kScaleBytes + group * kBandRows, p_.zeros + at, rows, policy_);
    }
  }
  __device__ __forceinline__ void Advance() {
    if (++band_ < pass_.bands) return;
    band_ = 0;
    chunk_ += kWarps;
    if (chunk_ * kChunk < p_.k) return;
    chunk_ = threadIdx.x / 32;
    pass_.Advance(share_);
  }

  const Product& p_;
  const RowShare& share_;
  const int lane_;
  const uint32_t ring_;
  const uint64_t policy_;
  int slot_ = 0;
  RowPass pass_;  // of the unit to fetch next
  int chunk_, band_ = 0;
};

// A chunk of activations: [tile][span of 32 columns]. As loaded, a lane has the eight columns from
// 8q on of its token; as used, word p of a span is the pair of columns 8p + 2q.
template <int kTiles>
struct Activations {
  uint4 at[kTiles][kSpans];
};
constexpr int kChunksAhead = 2;  // in flight

// One warp's activations: its chunks in turn up to chunk `end`, zeros past the last, and again from
// the first for the next pass.
template <typename T, int kTiles>
class ActivationStream {
 public:
  __device__ ActivationStream(const Product& p, int end)
      : p_(p),
        end_(end),
        token_(threadIdx.x % 32 / 4),
        column_(threadIdx.x % 4 * 8),
        chunk_(threadIdx.x / 32) {}

  __device__ __forceinline__ Activations<kTiles> Next() {
    Activations<kTiles> x;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int token = tile * kTileTokens + token_;
#pragma unroll
      for (int span = 0; span < kSpans; ++span) {
        const int column = chunk_ * kChunk + span * kPackedColumns + column_;
        const T* const from = static_cast<const T*>(p_.x) + token * p_.x_stride + column;
        const bool within = token < p_.tokens && column < p_.k;
        x.at[tile][span] = within ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
      }
    }
    chunk_ += kWarps;
    if (chunk_ >= end_) chunk_ = threadIdx.x / 32;
    return x;
  }

 private:
  const Product& p_;
  const int end_, token_, column_;
  int chunk_;
};

// Transposes the 4 x 4 words of four neighbouring lanes: word i of lane j becomes word j of lane i.
__device__ __forceinline__ uint4 TransposeQuad(const uint4& x) {
  const bool odd = threadIdx.x % 2 == 1, upper = threadIdx.x % 4 >= 2;
  uint4 a;  // pairs of lanes have exchanged words of pairs
  const uint32_t first = __shfl_xor_sync(0xffffffffu, odd ? x.x : x.y, 1);
  const uint32_t second = __shfl_xor_sync(0xffffffffu, odd ? x.z : x.w, 1);
  a.x = odd ? first : x.x;
  a.y = odd ? x.y : first;
  a.z = odd ? second : x.z;
  a.w = odd ? x.w : second;
  uint4 out;
  const uint32_t third = __shfl_xor_sync(0xffffffffu, upper ? a.x : a.z, 2);
  const uint32_t fourth = __shfl_xor_sync(0xffffffffu, upper ? a.y : a.w, 2);
  out.x = upper ? third : a.x;
  out.y = upper ? fourth : a.y;
  out.z = upper ? a.z : third;
  out.w = upper ? a.w : fourth;
  return out;
}

template <int kTiles>
__device__ __forceinline__ void Transpose(Activations<kTiles>& x) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int span = 0; span < kSpans; ++span) x.at[tile][span] = TransposeQuad(x.at[tile][span]);
  }
}

template <int kTiles>
using Sums = float[kMaxBands<kTiles>][kTiles][4];

// partial += the products of 32 columns of a unit, of each tile.
template <typename T, int kBits, int kTiles>
__device__ __forceinline__ void AddSpan(float (&partial)[kTiles][4], const Words& words, int span,
                                        const uint32_t (&zeros)[2], const Activations<kTiles>& x) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // 16 columns each
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Of row and row + 8, then of both eight columns further. A word has two or four pairs.
      constexpr int kPairs = 16 / kBits;
      const int pair = half * 2 + i / 2;
      w[i] =
          WidenPair<T, kBits>(words.at[i % 2][(span * UnitOf<kBits>::kHalves + pair / kPairs) % 4],
                              pair % kPairs, zeros[i % 2]);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4& t = x.at[tile][span];
      MultiplyAdd<T>(partial[tile], w, half == 0 ? t.x : t.z, half == 0 ? t.y : t.w);
    }
  }
}

// Adds one chunk of the pass's bands to the sums, fetching a unit for each one used.
template <typename T, int kBits, int kTiles>
__device__ __forceinline__ void AddChunk(const Product& p, Sums<kTiles>& sums, int bands,
                                         WeightStream<kBits>& weights,
                                         const Activations<kTiles>& x) {
  const int row = threadIdx.x % 32 / 4;
#pragma unroll
  for (int band = 0; band < kMaxBands<kTiles>; ++band) {
    if (band >= bands) break;
    weights.Await();
    Words words;
    float partial[kTiles][4] = {};
    uint32_t zeros[2];
    int group = 0, left = 0;  // spans of the group
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      if (left == 0) {
        left = p.group_spans;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          zeros[i] = ZeroWord<T, kBits>(weights.Zero(group, row + i * 8));
        }
      }
      constexpr int kSpansOfHalf = kSpans / UnitOf<kBits>::kHalves;
      if (span % kSpansOfHalf == 0) words = weights.Weights(span / kSpansOfHalf);
      AddSpan<T, kBits>(partial, words, span, zeros, x);
      if (--left > 0) continue;
      const float scales[2] = {weights.Scale(group, row), weights.Scale(group, row + 8)};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[band][tile][i] += scales[i / 2] * partial[tile][i];
          partial[tile][i] = 0;
        }
      }
      ++group;
    }
    weights.Fetch();
  }
}

// Adds the warps' sums of one pass, in the order of the warps, and stores them.
template <typename T, int kBits, int kTiles>
__device__ __forceinline__ void StoreSums(const Product& p, const Sums<kTiles>& sums,
                                          const RowPass& pass, Shared<kBits>& shared) {
  constexpr int kBandsAtOnce = kExchanged / kTiles;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = threadIdx.x % kBandRows;
  const int token = threadIdx.x / kBandRows % kTileTokens;
  const int part = threadIdx.x / (kBandRows * kTileTokens);
#pragma unroll
  for (int first = 0; first < kMaxBands<kTiles>; first += kBandsAtOnce) {
    if (first >= pass.bands) break;
    __syncthreads();  // the sums of the last exchange have been read
#pragma unroll
    for (int i = 0; i < kExchanged; ++i) {
      const float(&sum)[4] = sums[first + i / kTiles][i % kTiles];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        shared.sums[warp][i][lane % 4 * 2 + j % 2][lane / 4 + j / 2 * 8] = sum[j];
      }
    }
    __syncthreads();
    float total = shared.sums[0][part][token][row];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) total += shared.sums[i][part][token][row];
    const int band = first + part / kTiles;
    const int t = part % kTiles * kTileTokens + token;
    const int r = (pass.begin + band) * kBandRows + row;
    if (band < pass.bands && r < p.n && t < p.tokens) {
      if (p.bias != nullptr) total += ToFloat(static_cast<const T*>(p.bias)[r]);
      static_cast<T*>(p.out)[t * p.out_stride + r] = FromFloat<T>(total);
    }
  }
}

// kWarps warps compute. One more warp waits for the predecessor and tells the warps that fill the
// ring.
template <typename T, int kBits, int kTiles>
__global__ void __launch_bounds__(kThreads + 32, 1)
    GroupedKernel(const __grid_constant__ Product p) {
  extern __shared__ __align__(128) char bytes[];
  auto& shared = *reinterpret_cast<Shared<kBits>*>(bytes);
  PdlTrigger();
  if (threadIdx.x == kThreads) shared.ended = 0;
  __syncthreads();
  if (threadIdx.x >= kThreads) {
    PdlWait();
    if (threadIdx.x == kThreads) atomicExch(&shared.ended, 1);
    return;
  }
  const RowShare share(CeilDiv(p.n, kBandRows), kMaxBands<kTiles>);
  WeightStream<kBits> weights(p, share, shared);
  PdlWait();

  const int chunks = CeilDiv(p.k, kChunk);
  const int end = RoundUp(chunks, kWarps * kChunksAhead);
  ActivationStream<T, kTiles> activations(p, end);
  Activations<kTiles> x[kChunksAhead];
#pragma unroll
  for (int i = 0; i < kChunksAhead; ++i) x[i] = activations.Next();
  for (RowPass pass(share); pass.begin < share.end; pass.Advance(share)) {
    Sums<kTiles> sums = {};
    for (int first = threadIdx.x / 32; first < end; first += kWarps * kChunksAhead) {
#pragma unroll
      for (int i = 0; i < kChunksAhead; ++i) {
        if (first + i * kWarps < chunks) {
          Transpose(x[i]);
          AddChunk<T, kBits>(p, sums, pass.bands, weights, x[i]);
        }
        x[i] = activations.Next();
      }
    }
    StoreSums<T, kBits>(p, sums, pass, shared);
  }
}

using Kernel = void (*)(Product);
template <typename T, int kBits>
Kernel KernelFor(int tokens) {
  return tokens <= kTileTokens ? GroupedKernel<T, kBits, 1> : GroupedKernel<T, kBits, 2>;
}

template <typename T, int kBits>
void Prepare() {
  for (int tokens : {1, kMostTokens}) {
    CUDA_CHECK(cudaFuncSetAttribute(KernelFor<T, kBits>(tokens),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(sizeof(Shared<kBits>))));
  }
}

template <typename T, int kBits>
void LaunchGrouped(const Product& product, const Device& device) {
  const Grid grid{
      .blocks = static_cast<unsigned>(std::min(device.num_sms, CeilDiv(product.n, kBandRows))),
      .threads = kThreads + 32,
      .shared_bytes = sizeof(Shared<kBits>)};
  Launch(device, grid, KernelFor<T, kBits>(product.tokens), product);
}

// A thread makes eight columns: one pair of each word of a vector.
constexpr int kExpandThreads = 256;
template <typename T, int kBits>
__global__ void __launch_bounds__(kExpandThreads)
    ExpandKernel(const __grid_constant__ Product p, uint4* out) {
  PdlTrigger();
  PdlWait();                           // the product before this one may still read `out`
  constexpr int kEights = 16 / kBits;  // of a vector
  const int eights = p.k / 8;
  const int i = static_cast<int>(blockIdx.x) * kExpandThreads + static_cast<int>(threadIdx.x);
  if (i >= eights) return;
  for (int r = static_cast<int>(blockIdx.y); r < p.n; r += static_cast<int>(gridDim.y)) {
    const auto* const row = reinterpret_cast<const uint4*>(p.w + r * p.w_bytes);
    const uint4 words = row[i / kEights];
    const int64_t at = i * 8 / p.group * p.scale_stride + r;
    const float scale = p.scales[at];
    const uint32_t zero =
        ZeroWord<T, kBits>(p.zeros == nullptr ? 1u << (kBits - 1) : uint32_t{p.zeros[at]});
    const int pair = i % kEights;
    uint4 eight;
    eight.x = ScalePair(T(), WidenPair<T, kBits>(words.x, pair, zero), scale);
    eight.y = ScalePair(T(), WidenPair<T, kBits>(words.y, pair, zero), scale);
    eight.z = ScalePair(T(), WidenPair<T, kBits>(words.z, pair, zero), scale);
    eight.w = ScalePair(T(), WidenPair<T, kBits>(words.w, pair, zero), scale);
    out[int64_t{r} * eights + i] = eight;
  }
}

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// The facts of w.
Product ProductOf(const TensorView& w) {
  const int k = static_cast<int>(w.dim[1]);
  const int group = w.scale_columns == 0 ? k : w.scale_columns;
  return {.x = nullptr,
          .w = w.ptr<uint8_t>(),
          .scales = w.scales,
          .zeros = w.zeros,
          .bias = nullptr,
          .out = nullptr,
          .tokens = 0,
          .n = static_cast<int>(w.dim[0]),
          .k = k,
          .group = group,
          .group_spans = group % kChunk == 0 || group == k ? kSpans : group / kPackedColumns,
          .x_stride = 0,
          .w_bytes = BytesOf(w.dtype, w.row_stride),
          .scale_stride = w.scale_stride,
          .out_stride = 0};
}

// Rows of whole vectors, of few enough elements for 32 bits.
bool FitsPacked(const TensorView& w) {
  constexpr int64_t kMaxDim = int64_t{1} << 30;
  return IsPacked(w.dtype) && w.dim[1] % kPackedColumns == 0 &&
         w.row_stride % kPackedColumns == 0 && w.scale_rows == 1 && Aligned(w.data) &&
         w.dim[0] < kMaxDim && w.dim[1] < kMaxDim;
}

template <typename Fn>
void DispatchPacked(DType x, DType w, Fn fn) {
  DispatchHalf(x, [&](auto tag) {
    if (w == DType::kU4) {
      fn(tag, std::integral_constant<int, 4>());
    } else {
      fn(tag, std::integral_constant<int, 8>());
    }
  });
}

}  // namespace

void PrepareGroupedMatMul() {
  Prepare<__nv_bfloat16, 4>();
  Prepare<__nv_bfloat16, 8>();
  Prepare<__half, 4>();
  Prepare<__half, 8>();
}

bool FitsGroupedMatMul(const MatMulParams& p) {
  const int group = p.w.scale_columns;
  const bool divides = group == 0 || group == 32 || group == 64 || group % kChunk == 0;
  // A group that is the whole row needs no second block of scales.
  const bool scales = Aligned(p.w.scales) && (p.w.scale_stride % 16 == 0 || group == 0);
  return FitsPacked(p.w) && divides && scales && Aligned(p.w.zeros) && p.x.row_stride % 8 == 0 &&
         Aligned(p.x.data);
}

void GroupedMatMul(const MatMulParams& p, const Device& device) {
  CHECK(FitsGroupedMatMul(p) && p.out.dtype == p.x.dtype);
  Product product = ProductOf(p.w);
  product.bias = p.bias.data;
  product.x_stride = p.x.row_stride;
  product.out_stride = p.out.row_stride;
  for (int64_t first = 0; first < p.x.dim[0]; first += kMostTokens) {
    const int64_t tokens = std::min<int64_t>(kMostTokens, p.x.dim[0] - first);
    product.x = p.x.Rows(first, tokens).data;
    product.out = p.out.Rows(first, tokens).data;
    product.tokens = static_cast<int>(tokens);
    DispatchPacked(p.x.dtype, p.w.dtype, [&](auto tag, auto bits) {
      LaunchGrouped<decltype(tag), decltype(bits)::value>(product, device);
    });
  }
}

void ExpandPacked(const TensorView& w, const TensorView& out, const Device& device) {
  CHECK(FitsPacked(w) && Aligned(out.data) && out.IsDense() && out.dim == w.dim);
  if (w.size() == 0) return;
  constexpr int64_t kMostBlocks = 65535;  // of the grid's second dimension
  const Product product = ProductOf(w);
  const Grid grid{.blocks = {static_cast<unsigned>(CeilDiv(product.k / 8, kExpandThreads)),
                             static_cast<unsigned>(std::min(w.dim[0], kMostBlocks))},
                  .threads = kExpandThreads};
  DispatchPacked(out.dtype, w.dtype, [&](auto tag, auto bits) {
    Launch(device, grid, ExpandKernel<decltype(tag), decltype(bits)::value>, product,
           out.ptr<uint4>());
  });
}

}  // namespace quire::cuda

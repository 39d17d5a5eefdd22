// out[t, r] = sum over c of x[t, c] * w[r, c], for at most 16 tokens: a stream of n * k weights
// past a few activations, bound by one read of the weights (2 n k bytes at 4.3 TB/s).
//
// Matrix units take 16 rows of w as their first operand (a group) and 8 tokens as their second (a
// tile). A block owns a run of groups, whose number differs by at most one between blocks, and goes
// over them in passes of a few groups. Within a pass the columns are cut into chunks of 64, which
// the warps take in turn; each warp sums its own chunks in registers, and the warps' sums are added
// in the order of the warps. So k alone fixes the order of each sum.
//
// A warp's weights come through a ring of asynchronous copies. Every lane copies the bytes that it
// reads itself, so there are no barriers and no bank conflicts. The ring needs no result of a
// predecessor and is filled before PdlWait: memory is busy with the next product's weights as soon
// as a block of this product has ended, while small kernels run between the two. Fetching further
// ahead, into the second-level cache, would delay those kernels by more than it saves.
//
// A chunk of 8-bit elements is a block of columns with scales of its own, where there are such
// blocks: a warp multiplies each chunk's sums by the chunk's scales before it adds them to its own.
//
// 8-bit floats are widened to 16 bits in registers: the matrix units have no 8-bit products of this
// shape, and the compiler would widen the activations again for each group.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/device/weight_passes.cuh"
#include "kernels/cuda/matmul/skinny_matmul.h"
#include "kernels/device_limits.h"
#include "kernels/row_scale.h"

namespace quire::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kGroupRows = 16;
constexpr int kTileTokens = 8;
// Groups of a pass. Each pass reads the activations again; each group takes eight registers a tile.
constexpr int kMaxGroups = 4;
// Sums of a group, of every other product each: a product waits for the one before it in its sum.
constexpr int kChains = 2;
constexpr int kChunkBytes = 128;  // of a row: one line of the cache
// Columns of a chunk, of its half, and of a lane's 16 bytes.
template <typename T>
constexpr int kChunk = kChunkBytes / sizeof(T);
template <typename T>
constexpr int kHalf = kChunk<T> / 2;
template <typename T>
constexpr int kVector = 16 / sizeof(T);
static_assert(kCudaLimits.eight_bit_multiple == kVector<__nv_fp8_e4m3>);

// The elements of a product, and whether each chunk of their columns has scales.
template <typename T, bool kChunksHaveScales = false>
struct Form {
  using Element = T;
  using Sum = std::conditional_t<std::is_same_v<T, int8_t>, int32_t, float>;
  static constexpr bool kBlocks = kChunksHaveScales;
  static_assert(!kBlocks || kChunk<T> == kScaleRun);

  static constexpr bool kWidens = std::is_same_v<T, __nv_fp8_e4m3>;
  using Factor = std::conditional_t<kWidens, __half, T>;
  static constexpr int kProducts = kWidens ? 4 : 2;  // of half a chunk
  // Groups of a pass and chunks of activations in flight. A pass of few groups uses its weights
  // quickly and does not hide the latency of the activations; but the code of a pass is that of one
  // chunk and group times both, and where elements are widened it outgrows the caches.
  static constexpr int kGroups = kWidens ? 3 : kMaxGroups;
  template <int kTiles>
  static constexpr int kChunksAhead = kWidens ? 2 : 4 / kTiles;
};
// A unit is a chunk of a group: 2 KB, 64 bytes a lane. Seven units a warp keep 112 KB in flight to
// a multiprocessor, three times what 4.3 TB/s needs at a latency of 1 us. A ring of thirteen is
// still filling when the small kernels between two products end, which pays where a product is many
// such rings. A product is large if both n and k have this size, so that all products of a model
// use the same kernel: kernels that alternate evict each other's instructions from the caches.
constexpr int kSlotsOfSmall = 7, kSlotsOfLarge = 13;
constexpr int kLargeWidth = 4096;
// Units in flight while a predecessor runs: few, because its own loads would queue behind them.
constexpr int kEarlySlots = 2;
constexpr int kUnitVectors = 4;
constexpr int kUnitBytes = kUnitVectors * 32 * 16;
static_assert(kUnitBytes == kGroupRows * kChunkBytes);

// The sums of two tiles of a group, or of one tile of two groups, are exchanged at a time: one
// output a thread. With 20 floats a token the eight rows and four token pairs of a store hit 32
// banks.
constexpr int kExchanged = 2;
constexpr int kTokenPitch = 20;
template <typename F, int kSlots>
struct Shared {
  alignas(128) char rings[kWarps][kSlots][kUnitBytes];
  float scales[kWarps][F::kBlocks ? kSlots : 1][kGroupRows];  // of a unit's rows
  typename F::Sum sums[kWarps][kExchanged][kTileTokens][kTokenPitch];
  uint32_t ended;  // 1: the predecessor has ended

  // The same answer in all lanes of a warp, which call it together.
  __device__ __forceinline__ bool PredecessorEnded() {
    return __any_sync(0xffffffffu, threadIdx.x % 32 == 0 && atomicOr(&ended, 0) != 0);
  }
};
static_assert(kExchanged * kTileTokens * kGroupRows == kThreads);
// One block a multiprocessor. If two fitted, the next product's blocks would start beside this
// one's. A multiprocessor whose room a small kernel has taken would then get no block, and another
// would get two, which take almost twice as long.
static_assert(2 * (sizeof(Shared<Form<__half>, kSlotsOfSmall>) + 1024) > 228 * 1024);
static_assert(sizeof(Shared<Form<__nv_fp8_e4m3, true>, kSlotsOfLarge>) <= 227 * 1024);

struct Product {
  const void* x;
  const void* w;
  const void* bias;       // null: none
  const float* x_scales;  // as TensorView's; null if the elements are the values
  const float* w_scales;
  void* out;
  int tokens, n, k;
  int w_scale_shift;  // a scale has 2^this rows of w
  int64_t x_stride, w_stride, out_stride;
  int64_t x_scale_stride, w_scale_stride;  // from a block of columns to the next
};

// A lane's part of the two operands. Of 64 bytes of a row the matrix units expect lane (row,
// quarter q) to have four bytes at each of 4q, 4q + 16, 4q + 32 and 4q + 48. Any other columns give
// the same sum if both operands agree, so a lane takes the 16 bytes from 16q on as they lie in
// memory.
struct WeightUnit {
  uint4 at[2][2];   // [half of the chunk][row, row + 8]
  float scales[2];  // of a chunk with scales: those rows'
};
template <int kTiles>
struct Activations {
  uint4 at[kTiles][2];  // [tile][half of the chunk]
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
      if (i >= kEarlySlots && !shared.PredecessorEnded()) CopyWait<kEarlySlots - 1>();
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

// One warp's activations: its chunks in turn up to chunk `end`, zeros past the last, and again from
// the first for the next pass.
template <typename F, int kTiles>
class ActivationStream {
 public:
  using T = typename F::Element;

  __device__ ActivationStream(const Product& p, int end)
      : p_(p),
        end_(end),
        token_(threadIdx.x % 32 / 4),
        column_(threadIdx.x % 4 * kVector<T>),
        chunk_(threadIdx.x / 32) {}

  __device__ __forceinline__ Activations<kTiles> Next() {
    Activations<kTiles> x;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int token = tile * kTileTokens + token_;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = chunk_ * kChunk<T> + half * kHalf<T> + column_;
        const T* const from = static_cast<const T*>(p_.x) + token * p_.x_stride + column;
        const bool within = token < p_.tokens && column < p_.k;
        x.at[tile][half] = within ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
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

// The scales of a chunk for the tokens of a lane's sums: two of each tile. They are loaded when the
// chunk begins: its first weights hide their latency.
template <int kTiles>
using TokenScales = float[kTiles][2];
template <int kTiles>
__device__ __forceinline__ void LoadScales(const Product& p, int chunk,
                                           TokenScales<kTiles>& scales) {
  const float* const of_chunk = p.x_scales + chunk * p.x_scale_stride;
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    const int token = i / 2 * kTileTokens + threadIdx.x % 4 * 2 + i % 2;
    scales[i / 2][i % 2] = token < p.tokens ? of_chunk[token] : 0.0f;
  }
}

template <typename F, int kTiles>
using Sums = typename F::Sum[kMaxGroups][kTiles][kChains][4];

// The operands of product `i` of half a chunk: of two rows' 16 bytes, and of a token's.
__device__ __forceinline__ uint32_t WordOf(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
struct RowOperand {
  uint32_t at[4];
};
template <typename F>
__device__ __forceinline__ RowOperand RowsOf(const uint4& low, const uint4& high, int i) {
  if constexpr (F::kWidens) {
    const uint32_t l = WordOf(low, i), h = WordOf(high, i);
    return {WidenLow(l), WidenLow(h), WidenHigh(l), WidenHigh(h)};
  } else {
    return {WordOf(low, 2 * i), WordOf(high, 2 * i), WordOf(low, 2 * i + 1),
            WordOf(high, 2 * i + 1)};
  }
}
template <typename F, int kTiles>
struct TokenOperands {
  uint32_t at[kTiles][2][F::kProducts][2];  // [tile][half of the chunk][product]

  __device__ __forceinline__ explicit TokenOperands(const Activations<kTiles>& x) {
#pragma unroll
    for (int i = 0; i < kTiles * 2 * F::kProducts; ++i) {
      const int tile = i / (2 * F::kProducts), half = i / F::kProducts % 2;
      const int product = i % F::kProducts;
      const uint4& column = x.at[tile][half];
      uint32_t(&to)[2] = at[tile][half][product];
      if constexpr (F::kWidens) {
        to[0] = WidenLow(WordOf(column, product));
        to[1] = WidenHigh(WordOf(column, product));
      } else {
        to[0] = WordOf(column, 2 * product);
        to[1] = WordOf(column, 2 * product + 1);
      }
    }
  }
};

// Adds one unit's products to the sums of its group.
template <typename F, int kTiles>
__device__ __forceinline__ void AddUnit(typename F::Sum (&sums)[kTiles][kChains][4],
                                        const WeightUnit& w, const TokenOperands<F, kTiles>& x,
                                        const TokenScales<kTiles>& x_scales) {
  typename F::Sum of_chunk[kTiles][kChains][4] = {};
#pragma unroll
  for (int i = 0; i < 2 * F::kProducts; ++i) {
    const int half = i / F::kProducts, product = i % F::kProducts;
    const RowOperand rows = RowsOf<F>(w.at[half][0], w.at[half][1], product);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint32_t(&tokens)[2] = x.at[tile][half][product];
      MultiplyAdd<typename F::Factor>((F::kBlocks ? of_chunk : sums)[tile][i % kChains], rows.at,
                                      tokens[0], tokens[1]);
    }
  }
  if constexpr (F::kBlocks) {
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      const int tile = i / 4, j = i % 4;
      const float sum = of_chunk[tile][0][j] + of_chunk[tile][1][j];
      const float scale = w.scales[j / 2] * x_scales[tile][j % 2];
      sums[tile][0][j] = fmaf(sum, scale, sums[tile][0][j]);
    }
  }
}

// Adds one chunk of a pass's groups to the sums, fetching a unit for each one used.
template <typename F, int kTiles, int kSlots>
__device__ __forceinline__ void AddChunk(Sums<F, kTiles>& sums, int groups,
                                         WeightStream<F, kSlots>& weights,
                                         const Activations<kTiles>& x,
                                         const TokenScales<kTiles>& x_scales) {
  const TokenOperands<F, kTiles> tokens(x);
#pragma unroll
  for (int group = 0; group < F::kGroups; ++group) {
    if (group >= groups) break;
    AddUnit<F, kTiles>(sums[group], weights.Take(), tokens, x_scales);
    weights.Fetch();
  }
}

// Adds the warps' sums of one pass, in the order of the warps, and stores them.
template <typename F, typename Out, int kTiles, int kSlots>
__device__ __forceinline__ void StoreSums(const Product& p, const Sums<F, kTiles>& sums,
                                          const RowPass& pass, Shared<F, kSlots>& shared) {
  constexpr int kGroupsAtOnce = kExchanged / kTiles;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = threadIdx.x % kGroupRows;
  const int token = threadIdx.x / kGroupRows % kTileTokens;
  const int part = threadIdx.x / (kGroupRows * kTileTokens);
#pragma unroll
  for (int first = 0; first < kMaxGroups; first += kGroupsAtOnce) {
    if (first >= pass.bands) break;
    __syncthreads();  // the sums of the last exchange have been read
#pragma unroll
    for (int i = 0; i < kExchanged; ++i) {
      const typename F::Sum(&sum)[kChains][4] = sums[first + i / kTiles][i % kTiles];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        shared.sums[warp][i][lane % 4 * 2 + j % 2][lane / 4 + j / 2 * 8] = sum[0][j] + sum[1][j];
      }
    }
    __syncthreads();
    typename F::Sum sum = shared.sums[0][part][token][row];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) sum += shared.sums[i][part][token][row];
    auto total = static_cast<float>(sum);
    const int group = first + part / kTiles;
    const int t = part % kTiles * kTileTokens + token;
    const int r = (pass.begin + group) * kGroupRows + row;
    if (group < pass.bands && r < p.n && t < p.tokens) {
      if (!F::kBlocks && p.w_scales != nullptr) total *= p.x_scales[t] * p.w_scales[r];
      if (p.bias != nullptr) total += ToFloat(static_cast<const Out*>(p.bias)[r]);
      static_cast<Out*>(p.out)[t * p.out_stride + r] = FromFloat<Out>(total);
    }
  }
}

// kWarps warps compute. One more warp waits for the predecessor and tells the warps that fill the
// ring.
template <typename F, typename Out, int kTiles, int kSlots>
__global__ void __launch_bounds__(kThreads + 32, 1)
    SkinnyKernel(const __grid_constant__ Product p) {
  using T = typename F::Element;
  extern __shared__ __align__(128) char bytes[];
  auto& shared = *reinterpret_cast<Shared<F, kSlots>*>(bytes);
  PdlTrigger();
  if (threadIdx.x == kThreads) shared.ended = 0;
  __syncthreads();
  if (threadIdx.x >= kThreads) {
    PdlWait();
    if (threadIdx.x == kThreads) atomicExch(&shared.ended, 1);
    return;
  }
  const RowShare share(CeilDiv(p.n, kGroupRows), F::kGroups);
  WeightStream<F, kSlots> weights(p, share, shared);
  PdlWait();

  const int chunks = CeilDiv(p.k, kChunk<T>);
  constexpr int kAhead = F::template kChunksAhead<kTiles>;
  const int end = RoundUp(chunks, kWarps * kAhead);
  ActivationStream<F, kTiles> activations(p, end);
  Activations<kTiles> x[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) x[i] = activations.Next();
  for (RowPass pass(share); pass.begin < share.end; pass.Advance(share)) {
    Sums<F, kTiles> sums = {};
    for (int first = threadIdx.x / 32; first < end; first += kWarps * kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int chunk = first + i * kWarps;
        if (chunk < chunks) {
          TokenScales<kTiles> scales;
          if constexpr (F::kBlocks) LoadScales<kTiles>(p, chunk, scales);
          AddChunk<F>(sums, pass.bands, weights, x[i], scales);
        }
        x[i] = activations.Next();
      }
    }
    StoreSums<F, Out, kTiles>(p, sums, pass, shared);
  }
}

using Kernel = void (*)(Product);
struct SizedKernel {
  Kernel kernel;
  size_t shared_bytes;
};
template <typename F, typename Out, int kSlots>
SizedKernel KernelFor(int tokens) {
  return {tokens <= kTileTokens ? SkinnyKernel<F, Out, 1, kSlots> : SkinnyKernel<F, Out, 2, kSlots>,
          sizeof(Shared<F, kSlots>)};
}
template <typename F, typename Out>
SizedKernel KernelFor(int tokens, bool large) {
  return large ? KernelFor<F, Out, kSlotsOfLarge>(tokens)
               : KernelFor<F, Out, kSlotsOfSmall>(tokens);
}

template <typename F, typename Out>
void Prepare() {
  for (int tokens : {1, kMaxSkinnyTokens}) {
    for (bool large : {false, true}) {
      const SizedKernel sized = KernelFor<F, Out>(tokens, large);
      CUDA_CHECK(cudaFuncSetAttribute(sized.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(sized.shared_bytes)));
    }
  }
}

// Prepares the kernels of scaled elements with every type of results.
template <typename F>
void PrepareScaled() {
  Prepare<F, __nv_bfloat16>();
  Prepare<F, __half>();
  Prepare<F, float>();
}

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void PrepareSkinnyMatMul() {
  Prepare<Form<__nv_bfloat16>, __nv_bfloat16>();
  Prepare<Form<__nv_bfloat16>, float>();
  Prepare<Form<__half>, __half>();
  Prepare<Form<__half>, float>();
  PrepareScaled<Form<__nv_fp8_e4m3>>();
  PrepareScaled<Form<__nv_fp8_e4m3, true>>();
  PrepareScaled<Form<int8_t>>();
}

bool FitsSkinnyMatMul(const MatMulParams& p) {
  constexpr int64_t kMaxDim = int64_t{1} << 30;
  const int64_t vector = 16 / static_cast<int64_t>(SizeOf(p.w.dtype));
  return p.w.dim[1] % vector == 0 && p.w.row_stride % vector == 0 && p.x.row_stride % vector == 0 &&
         Aligned(p.x.data) && Aligned(p.w.data) && p.w.dim[0] < kMaxDim && p.w.dim[1] < kMaxDim;
}

void SkinnyMatMul(const MatMulParams& p, const Device& device) {
  CHECK(FitsSkinnyMatMul(p));
  CHECK(p.x.dim[0] >= 1 && p.x.dim[0] <= kMaxSkinnyTokens);
  const bool of_chunks = p.w.scale_columns != 0;
  CHECK(p.x.dtype != DType::kI8 || (!of_chunks && p.w.dim[1] <= kMaxIntegerColumns));
  CHECK(!of_chunks || (p.w.scale_columns == kScaleRun && p.x.scale_columns == kScaleRun));
  CHECK(std::has_single_bit(static_cast<uint32_t>(p.w.scale_rows)));
  CHECK(p.x.scale_rows == 1 && (of_chunks || p.w.scale_rows == 1));
  const Product product{.x = p.x.data,
                        .w = p.w.data,
                        .bias = p.bias.data,
                        .x_scales = p.x.scales,
                        .w_scales = p.w.scales,
                        .out = p.out.data,
                        .tokens = static_cast<int>(p.x.dim[0]),
                        .n = static_cast<int>(p.w.dim[0]),
                        .k = static_cast<int>(p.w.dim[1]),
                        .w_scale_shift = std::countr_zero(static_cast<uint32_t>(p.w.scale_rows)),
                        .x_stride = p.x.row_stride,
                        .w_stride = p.w.row_stride,
                        .out_stride = p.out.row_stride,
                        .x_scale_stride = p.x.scale_stride,
                        .w_scale_stride = p.w.scale_stride};
  const int blocks = std::min(device.num_sms, CeilDiv(product.n, kGroupRows));
  const bool large = std::min(product.n, product.k) >= kLargeWidth;
  const auto launch = [&](const SizedKernel& sized) {
    const Grid grid{.blocks = static_cast<unsigned>(blocks),
                    .threads = kThreads + 32,
                    .shared_bytes = sized.shared_bytes};
    Launch(device, grid, sized.kernel, product);
  };
  const auto launch_scaled = [&](auto form) {
    DispatchDevice(p.out.dtype, [&](auto out) {
      launch(KernelFor<decltype(form), decltype(out)>(product.tokens, large));
    });
  };
  if (p.x.dtype == DType::kI8) return launch_scaled(Form<int8_t>{});
  if (p.x.dtype == DType::kE4M3) {
    return of_chunks ? launch_scaled(Form<__nv_fp8_e4m3, true>{})
                     : launch_scaled(Form<__nv_fp8_e4m3>{});
  }
  DispatchHalf(p.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (p.out.dtype == DType::kF32) {
      launch(KernelFor<Form<T>, float>(product.tokens, large));
    } else {
      CHECK(p.out.dtype == p.x.dtype);
      launch(KernelFor<Form<T>, T>(product.tokens, large));
    }
  });
}

}  // namespace quire::cuda

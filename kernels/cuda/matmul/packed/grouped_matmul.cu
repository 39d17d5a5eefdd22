// out[t, r] = sum over groups of scale[r, group] * (sum over c of the group of x[t, c] * (w[r, c] -
// zero[r, group])), for at most 8 tokens: a stream of n * k weights of 4 or 8 bits past a few
// activations, bound by one read of the weights.
//
// Matrix units take 16 rows of w as their first operand (a band) and 8 tokens as their second. A
// block owns a run of bands and goes over them in passes of a few. Within a pass the
// columns are cut into chunks of 128, which the warps take in turn; each warp sums its own chunks
// in registers, and the warps' sums are added in the order of the warps. Elements less their zeros
// are exact in the type of the matrix units, so the sum over a group's columns in a chunk is that
// of exact products; it is multiplied by the scale in float32.
//
// To widen an element costs more than to multiply it, so the kernel is as near to the rate of
// instructions as to that of memory. Sixteen warps hide each other's latency. A warp's weights come
// through a ring of asynchronous copies, a band's part of a chunk with its scales and zeros in each
// slot; to advance to the next costs a lane a few additions. The first copies need no result of a
// predecessor and start before PdlWait.
#include <algorithm>
#include <type_traits>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/device/weight_passes.cuh"
#include "kernels/cuda/matmul/packed/grouped_matmul.h"
#include "kernels/cuda/matmul/packed/packed_weights.cuh"
#include "kernels/packed_row.h"

namespace quire::cuda {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * 32;
constexpr int kBandRows = 16;
// Of a pass, each of which reads the activations again; more take more registers than there are.
constexpr int kMaxBands = 4;
constexpr int kChunk = 128;  // columns
constexpr int kSpans = kChunk / kPackedColumns;
// Groups of a chunk, at most, with a scale and a zero for each row of a band.
constexpr int kMaxGroups = kChunk / kPackedColumns;

// A unit is a band's part of a chunk: its weights, its scales [group][row] and its zeros. Vector v
// of 16 bytes of a row lies where those of eight rows at the same columns are in different banks.
template <int kBits, int kGroups>
struct Unit {
  static constexpr int kRowBytes = kChunk * kBits / 8;
  static constexpr int kVectors = kRowBytes / 16;  // of a row
  static constexpr int kWeightBytes = kBandRows * kRowBytes;
  static constexpr int kScaleBytes = kBandRows * 4, kZeroBytes = kBandRows;
  static constexpr int kZeros = kWeightBytes + kGroups * kScaleBytes;  // where they begin
  static constexpr int kBytes = RoundUp(kZeros + kGroups * kZeroBytes, 128);
  static constexpr int kSlots = (200 << 10) / kWarps / kBytes;  // of a warp's ring

  __device__ static __forceinline__ int VectorAt(int row, int v) {
    return row * kRowBytes + (kBits == 4 ? v ^ (row / 2 % 4) : v ^ (row % 8)) * 16;
  }
};
// A warp's units in flight while a predecessor runs: few, because its own loads would queue behind
// them.
constexpr int kEarlySlots = 3;

constexpr int kExchanged = 2;    // bands whose sums the warps exchange at a time
constexpr int kTokenPitch = 20;  // so that the rows and tokens of a store hit 32 banks
using Exchange = float[kWarps][kExchanged][kMaxGroupedTokens][kTokenPitch];
constexpr int kStored = kExchanged * kMaxGroupedTokens * kBandRows;  // sums of an exchange
static_assert(kStored <= kThreads);
template <typename U>
struct Shared {
  alignas(128) char rings[kWarps][U::kSlots][U::kBytes];
  Exchange sums;

  // One block a multiprocessor, as of skinny/skinny_layout.cuh.
  static constexpr bool Fits() { return sizeof(Shared) > 113 << 10 && sizeof(Shared) <= 227 << 10; }
};

struct Product {
  const void* x;
  const uint8_t* w;
  const float* scales;
  const uint8_t* zeros;  // null: the middle of the range
  const void* bias;      // null: none
  void* out;
  int tokens, n, k;
  int group_chunks;  // that share a scale; 1 if a chunk has several groups
  int64_t x_stride, w_bytes, scale_stride, out_stride;
};

// One warp's weights in the order of use: pass by pass, chunk by chunk, band by band.
template <int kBits, int kGroups>
class WeightStream {
 public:
  using U = Unit<kBits, kGroups>;

  // Fills the ring, all but a few units of it when the predecessor has ended.
  __device__ WeightStream(const Product& p, const RowShare& share, Shared<U>& shared)
      : p_(p),
        share_(share),
        lane_(threadIdx.x % 32),
        ring_(SharedAddress(shared.rings[threadIdx.x / 32])),
        slot_(ring_),
        policy_(EvictFirst()),
        pass_(share),
        chunk_(threadIdx.x / 32) {
    static_assert(Shared<U>::Fits());
    if (chunk_ * kChunk >= p.k) pass_.begin = share.end;  // this warp has no chunk
    BeginChunk();
#pragma unroll 1
    for (int i = 0; i < U::kSlots; ++i) {
      if (i == kEarlySlots) PdlWait();
      Fetch();
    }
  }

  // Waits for the oldest unit; then the functions below read it until Fetch.
  __device__ __forceinline__ void Await() const {
    CopyWait<U::kSlots - 1>();
    __syncwarp();
  }
  // Words of vectors 4i to 4i + 3 of this lane's two rows: [row, row + 8][vector].
  __device__ __forceinline__ void Weights(int i, uint32_t (&words)[2][4]) const {
    const uint32_t from = slot_ + U::VectorAt(lane_ % 8, i * 4 + lane_ / 8);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint32_t(&to)[4] = words[j];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(from + j * 8 * U::kRowBytes)
                   : "memory");
    }
  }
  // Of a group of the chunk and this lane's row, or the row eight further.
  __device__ __forceinline__ float Scale(int group, int j) const {
    float scale;
    asm volatile("ld.shared.f32 %0, [%1];"
                 : "=f"(scale)
                 : "r"(slot_ + lane_ / 4 * 4 + U::kWeightBytes + group * U::kScaleBytes + j * 32)
                 : "memory");
    return scale;
  }
  __device__ __forceinline__ uint32_t Zero(int group, int j) const {
    if (p_.zeros == nullptr) return 1u << (kBits - 1);
    uint32_t zero;
    asm volatile("ld.shared.u8 %0, [%1];"
                 : "=r"(zero)
                 : "r"(slot_ + lane_ / 4 + U::kZeros + group * U::kZeroBytes + j * 8)
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
    slot_ += U::kBytes;
    if (slot_ == ring_ + U::kSlots * U::kBytes) slot_ = ring_;
  }

 private:
  // Four lanes copy a row. Columns past the last are copied as zeros.
  __device__ __forceinline__ void Copy() const {
    const int r = lane_ / 4, v = lane_ % 4;
#pragma unroll
    for (int i = 0; i < U::kVectors / 4; ++i) {
      const uint32_t to = slot_ + U::VectorAt(r, i * 4 + v);
      const int bytes = i * 64 < row_left_ ? 16 : 0;
      CopyOnce(to, from_ + (bytes == 0 ? 0 : i * 64), bytes, policy_);
      CopyOnce(to + 8 * U::kRowBytes, from_ + 8 * p_.w_bytes + (bytes == 0 ? 0 : i * 64), bytes,
               policy_);
    }
    if (scales_bytes_ > 0) CopyOnce(slot_ + ScalePlace(), scales_from_, 16, policy_);
  }
  // Of the 16 bytes of scales or zeros that this lane copies: four lanes copy the scales of a
  // group, one its zeros.
  __device__ __forceinline__ bool CopiesZeros() const { return lane_ >= 4 * kGroups; }
  __device__ __forceinline__ int Group() const {
    return CopiesZeros() ? lane_ - 4 * kGroups : lane_ / 4;
  }
  __device__ __forceinline__ uint32_t ScalePlace() const {
    return U::kWeightBytes + lane_ * 16;  // zeros follow scales
  }
  // Finds this lane's vectors of the first band of a chunk.
  __device__ __forceinline__ void BeginChunk() {
    const int row = pass_.begin * kBandRows;
    const int byte = chunk_ * U::kRowBytes + lane_ % 4 * 16;
    row_left_ = p_.k / 8 * kBits - byte;
    from_ = p_.w + (row + lane_ / 4) * p_.w_bytes + (row_left_ > 0 ? byte : 0);
    const bool used = Group() < kGroups && chunk_ * kChunk + Group() * (kChunk / kGroups) < p_.k &&
                      (!CopiesZeros() || p_.zeros != nullptr);
    const int index = (p_.group_chunks == 1 ? chunk_ : chunk_ / p_.group_chunks) * kGroups;
    const int64_t at = (index + Group()) * p_.scale_stride + row;
    scales_bytes_ = !used ? 0 : CopiesZeros() ? U::kZeroBytes : U::kScaleBytes;
    scales_from_ = CopiesZeros()
                       ? p_.zeros + at
                       : reinterpret_cast<const uint8_t*>(p_.scales + at) + lane_ % 4 * 16;
  }
  __device__ __forceinline__ void Advance() {
    if (++band_ < pass_.bands) {
      from_ += kBandRows * p_.w_bytes;
      scales_from_ += scales_bytes_;
      return;
    }
    band_ = 0;
    chunk_ += kWarps;
    if (chunk_ * kChunk >= p_.k) {
      chunk_ = threadIdx.x / 32;
      pass_.Advance(share_);
    }
    BeginChunk();
  }

  const Product& p_;
  const RowShare& share_;
  const int lane_;
  const uint32_t ring_;
  uint32_t slot_;  // the oldest unit's
  const uint64_t policy_;
  RowPass pass_;  // of the unit to fetch next
  int chunk_, band_ = 0;
  // Of that unit, where this lane copies from: the weights of a row, of which so many bytes are
  // left, and 16 bytes of scales or zeros, of which a band has so many; 0: none.
  const uint8_t* from_;
  int row_left_;
  const uint8_t* scales_from_;
  int scales_bytes_;
};

// A chunk of activations: word p of [span of 32 columns] is the pair of columns 8p + 2q of this
// lane's token, q its place among four.
struct Activations {
  uint32_t at[kSpans][4];
};
constexpr int kChunksAhead = 2;  // in flight

// One warp's activations: its chunks in turn up to chunk `end`, zeros past the last, and again from
// the first for the next pass.
template <typename T>
class ActivationStream {
 public:
  __device__ ActivationStream(const Product& p, int end)
      : p_(p),
        end_(end),
        token_(threadIdx.x % 32 / 4),
        from_(static_cast<const T*>(p.x) + token_ * p.x_stride + threadIdx.x % 4 * 2),
        chunk_(threadIdx.x / 32) {}

  __device__ __forceinline__ Activations Next() {
    Activations x;
    const T* const from = from_ + chunk_ * kChunk;
#pragma unroll
    for (int span = 0; span < kSpans; ++span) {
      const bool within = token_ < p_.tokens && chunk_ * kChunk + span * kPackedColumns < p_.k;
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const T* const at = from + span * kPackedColumns + pair * 8;
        x.at[span][pair] = within ? *reinterpret_cast<const uint32_t*>(at) : 0;
      }
    }
    chunk_ += kWarps;
    if (chunk_ >= end_) chunk_ = threadIdx.x / 32;
    return x;
  }

 private:
  const Product& p_;
  const int end_, token_;
  const T* const from_;
  int chunk_;
};

using Sums = float[kMaxBands][4];
// The sums of a group's columns in a chunk: two, so that no product waits for the one before it.
using Partial = float[2][4];

// partial += the products of 32 columns of a unit.
template <typename T, int kBits>
__device__ __forceinline__ void AddSpan(Partial& partial, const uint32_t (&words)[2][4], int span,
                                        const uint32_t (&zeros)[2], const Activations& x) {
  constexpr int kPairs = 16 / kBits;  // of a word
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // 16 columns each
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Of row and row + 8, then of both eight columns further.
      const int pair = half * 2 + i / 2;
      w[i] = WidenPair<T, kBits>(words[i % 2][(span * 4 + pair) / kPairs % 4], pair % kPairs,
                                 zeros[i % 2]);
    }
    MultiplyAdd<T>(partial[half], w, x.at[span][half * 2], x.at[span][half * 2 + 1]);
  }
}

// Adds one chunk of the pass's bands to the sums, fetching a unit for each one used.
template <typename T, int kBits, int kGroups>
__device__ __forceinline__ void AddChunk(Sums& sums, int bands, int groups,
                                         WeightStream<kBits, kGroups>& weights,
                                         const Activations& x) {
  constexpr int kGroupSpans = kSpans / kGroups;
  constexpr int kLoadSpans = kSpans * 4 / Unit<kBits, kGroups>::kVectors;  // of four vectors
#pragma unroll
  for (int band = 0; band < kMaxBands; ++band) {
    if (band >= bands) break;
    weights.Await();
    uint32_t words[2][4];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group >= groups) break;
      const float scales[2] = {weights.Scale(group, 0), weights.Scale(group, 1)};
      const uint32_t zeros[2] = {ZeroWord<T, kBits>(weights.Zero(group, 0)),
                                 ZeroWord<T, kBits>(weights.Zero(group, 1))};
      Partial partial = {};
#pragma unroll
      for (int i = 0; i < kGroupSpans; ++i) {
        const int span = group * kGroupSpans + i;
        if (span % kLoadSpans == 0) weights.Weights(span / kLoadSpans, words);
        AddSpan<T, kBits>(partial, words, span, zeros, x);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[band][i] += scales[i / 2] * (partial[0][i] + partial[1][i]);
      }
    }
    weights.Fetch();
  }
}

// Adds the warps' sums of one pass, in the order of the warps, and stores them.
template <typename T>
__device__ __forceinline__ void StoreSums(const Product& p, const Sums& sums, const RowPass& pass,
                                          Exchange& exchange) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = threadIdx.x % kBandRows;
  const int token = threadIdx.x / kBandRows % kMaxGroupedTokens;
  const int part = threadIdx.x / (kBandRows * kMaxGroupedTokens) % kExchanged;
#pragma unroll
  for (int first = 0; first < kMaxBands; first += kExchanged) {
    if (first >= pass.bands) break;
    __syncthreads();  // the sums of the last exchange have been read
#pragma unroll
    for (int i = 0; i < kExchanged; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        exchange[warp][i][lane % 4 * 2 + j % 2][lane / 4 + j / 2 * 8] = sums[first + i][j];
      }
    }
    __syncthreads();
    if (threadIdx.x >= kStored) continue;
    float total = exchange[0][part][token][row];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) total += exchange[i][part][token][row];
    const int r = (pass.begin + first + part) * kBandRows + row;
    if (first + part < pass.bands && token < p.tokens) {
      if (p.bias != nullptr) total += ToFloat(static_cast<const T*>(p.bias)[r]);
      static_cast<T*>(p.out)[token * p.out_stride + r] = FromFloat<T>(total);
    }
  }
}

template <typename T, int kBits, int kGroups>
__global__ void __launch_bounds__(kThreads, 1) GroupedKernel(const __grid_constant__ Product p) {
  extern __shared__ __align__(128) char bytes[];
  auto& shared = *reinterpret_cast<Shared<Unit<kBits, kGroups>>*>(bytes);
  PdlTrigger();
  const RowShare share(p.n / kBandRows, kMaxBands);
  WeightStream<kBits, kGroups> weights(p, share, shared);

  const int chunks = CeilDiv(p.k, kChunk);
  const int end = RoundUp(chunks, kWarps * kChunksAhead);
  ActivationStream<T> activations(p, end);
  Activations x[kChunksAhead];
#pragma unroll
  for (int i = 0; i < kChunksAhead; ++i) x[i] = activations.Next();
  for (RowPass pass(share); pass.begin < share.end; pass.Advance(share)) {
    Sums sums = {};
    for (int first = threadIdx.x / 32; first < end; first += kWarps * kChunksAhead) {
#pragma unroll
      for (int i = 0; i < kChunksAhead; ++i) {
        const int chunk = first + i * kWarps;
        if (chunk < chunks) {
          const int groups = CeilDiv(p.k - chunk * kChunk, kChunk / kGroups);
          AddChunk<T>(sums, pass.bands, groups, weights, x[i]);
        }
        x[i] = activations.Next();
      }
    }
    StoreSums<T>(p, sums, pass, shared.sums);
  }
}

using Kernel = void (*)(Product);
struct SizedKernel {
  Kernel kernel;
  size_t shared_bytes;
};
template <typename T, int kBits, int kGroups>
SizedKernel KernelFor() {
  return {GroupedKernel<T, kBits, kGroups>, sizeof(Shared<Unit<kBits, kGroups>>)};
}
template <typename T, int kBits>
SizedKernel KernelFor(int groups) {
  if (groups == 1) return KernelFor<T, kBits, 1>();
  if (groups == 2) return KernelFor<T, kBits, 2>();
  CHECK_EQ(groups, kMaxGroups);
  return KernelFor<T, kBits, kMaxGroups>();
}
// groups: of a chunk.
SizedKernel KernelFor(DType x, DType w, int groups) {
  return DispatchHalf(x, [&](auto tag) {
    using T = decltype(tag);
    return w == DType::kU4 ? KernelFor<T, 4>(groups) : KernelFor<T, 8>(groups);
  });
}

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void PrepareGroupedMatMul() {
  for (DType x : {DType::kBF16, DType::kF16}) {
    for (DType w : {DType::kU4, DType::kU8}) {
      for (int groups = 1; groups <= kMaxGroups; groups *= 2) {
        const SizedKernel sized = KernelFor(x, w, groups);
        CUDA_CHECK(cudaFuncSetAttribute(sized.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(sized.shared_bytes)));
      }
    }
  }
}

bool FitsGroupedMatMul(const MatMulParams& p) {
  constexpr int64_t kMaxDim = int64_t{1} << 30;
  const TensorView &w = p.w, &x = p.x;
  const int group = w.scale_columns;
  if (!IsPacked(w.dtype) || p.out.dtype != x.dtype) return false;
  const bool divides = group == 0 || group == 32 || group == 64 || group % kChunk == 0;
  const bool scales = Aligned(w.scales) && Aligned(w.zeros) && w.scale_rows == 1 &&
                      (w.scale_stride % 16 == 0 || group == 0);
  const bool rows = w.dim[0] % kBandRows == 0 && w.dim[1] % kPackedColumns == 0 &&
                    w.row_stride % kPackedColumns == 0 && Aligned(w.data);
  return divides && scales && rows && w.dim[0] < kMaxDim && w.dim[1] < kMaxDim &&
         x.row_stride % 8 == 0 && Aligned(x.data);
}

void GroupedMatMul(const MatMulParams& p, const Device& device) {
  CHECK(FitsGroupedMatMul(p) && p.x.dim[0] <= kMaxGroupedTokens);
  const int n = static_cast<int>(p.w.dim[0]), k = static_cast<int>(p.w.dim[1]);
  const int chunks = CeilDiv(k, kChunk), group = p.w.scale_columns;
  const Product product{.x = p.x.data,
                        .w = p.w.ptr<uint8_t>(),
                        .scales = p.w.scales,
                        .zeros = p.w.zeros,
                        .bias = p.bias.data,
                        .out = p.out.data,
                        .tokens = static_cast<int>(p.x.dim[0]),
                        .n = n,
                        .k = k,
                        .group_chunks = group == 0 ? chunks : std::max(1, group / kChunk),
                        .x_stride = p.x.row_stride,
                        .w_bytes = BytesOf(p.w.dtype, p.w.row_stride),
                        .scale_stride = p.w.scale_stride,
                        .out_stride = p.out.row_stride};
  const int groups = group == 0 ? 1 : std::max(1, kChunk / group);  // of a chunk
  const SizedKernel sized = KernelFor(p.x.dtype, p.w.dtype, groups);
  Launch(device,
         {.blocks = static_cast<unsigned>(std::min(device.num_sms, n / kBandRows)),
          .threads = kThreads,
          .shared_bytes = sized.shared_bytes},
         sized.kernel, product);
}

}  // namespace quire::cuda

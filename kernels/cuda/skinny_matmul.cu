// out[t, r] = sum over c of x[t, c] * w[r, c], for at most 16 tokens: a stream of n * k weights
// past a few activations, bound by reading the weights once (2 n k bytes at 4.3 TB/s).
//
// Matrix units take 16 rows of w as their first operand (a group) and 8 tokens as their second (a
// tile). A block owns a run of groups, the same number for every block give or take one, and goes
// over them in passes of at most kMaxGroups. Within a pass the columns are cut into chunks of 64,
// dealt to the warps in turn; each warp sums its own chunks in registers, and the warps' sums are
// added in the order of the warps. So k alone fixes the order of each sum.
//
// Two more warps have the copy engine bring the weights, 16 rows of 512 columns at a time, and the
// activations into two rings in shared memory. The weights need nothing of a predecessor, so their
// ring is filled before PdlWait: two blocks fit on a multiprocessor, and the next product's weights
// arrive while this one's last sums are being added.
#include <algorithm>

#include "kernels/check.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/skinny_matmul.h"

namespace quire::cuda {
namespace {

constexpr int kWarps = 8;  // that multiply; one more copies weights, one activations
constexpr int kThreads = (kWarps + 2) * 32;
constexpr int kGroupRows = 16;
constexpr int kTileTokens = 8;
constexpr int kMaxGroups = 4;
constexpr int kChunk = 64;              // columns
constexpr int kSpan = kWarps * kChunk;  // columns of a stage: a chunk for each warp
// 64 bytes between the rows put the two rows that eight lanes read into different banks.
constexpr int kRowPitch = kSpan * 2 + 64;
constexpr int kWeightBytes = kGroupRows * kRowPitch;
template <int kTiles>
constexpr int kWeightStages = 6 - kTiles;
constexpr int kActivationStages = 2;
// Of them, those being filled. At 4.3 TB/s and a latency of 1 us a multiprocessor needs 33 KB on
// their way; more only make a queue that the activations have to stand in as well.
constexpr int kInFlight = 3;

// Sums of two tiles of a group (or of one tile of two groups) are exchanged at a time: one output a
// thread. 20 floats a token: the eight rows and four token pairs of a store hit 32 banks.
constexpr int kExchanged = 2;
constexpr int kTokenPitch = 20;
template <int kTiles>
struct Shared {
  static constexpr int kWeights = kWeightStages<kTiles>;
  alignas(128) char weights[kWeights][kWeightBytes];
  char activations[kActivationStages][kTiles * kTileTokens * kRowPitch];
  float sums[kWarps][kExchanged][kTileTokens][kTokenPitch];
  Barrier weights_full[kWeights], weights_empty[kWeights];
  Barrier activations_full[kActivationStages], activations_empty[kActivationStages];
};
static_assert(kExchanged * kTileTokens * kGroupRows == kWarps * 32);

struct Product {
  const void* x;
  const void* w;
  const void* bias;  // null: none
  void* out;
  int tokens, n, k;
  int64_t x_stride, w_stride, out_stride;
};

__host__ __device__ constexpr int DivideUp(int a, int b) { return (a + b - 1) / b; }

// The groups of one block, cut into passes of nearly equal size.
struct Share {
  int begin, end, passes;

  __device__ Share(int groups, int block, int blocks)
      : begin(static_cast<int64_t>(groups) * block / blocks),
        end(static_cast<int64_t>(groups) * (block + 1) / blocks),
        passes(DivideUp(end - begin, kMaxGroups)) {}
  __device__ int PassBegin(int pass) const { return begin + (end - begin) * pass / passes; }
};

// What a lane holds of the two operands. Of 32 columns the matrix units want lane (row, quarter) to
// have columns 2q, 2q+1, 2q+8, 2q+9 of each 16; any other four per lane give the same sum if both
// operands agree, so a lane takes columns 8q .. 8q+7: 16 bytes, as they lie in memory.
struct WeightUnit {
  uint4 at[2][2];  // [half of the chunk][row, row + 8]
};
template <int kTiles>
struct Activations {
  uint4 at[kTiles][2];  // [tile][half of the chunk]
};

// A place in a ring of stages.
template <int kStages>
class Ring {
 public:
  __device__ __forceinline__ int stage() const { return stage_; }
  // Of the barriers' phases in this round of the ring.
  __device__ __forceinline__ int parity() const { return parity_; }
  __device__ __forceinline__ void Advance() {
    if (++stage_ < kStages) return;
    stage_ = 0;
    parity_ ^= 1;
  }

 private:
  int stage_ = 0, parity_ = 0;
};

// A warp has rows of at most a span copied, one a lane.
__device__ __forceinline__ void CopyRows(char* to, const void* from, int64_t stride_bytes, int rows,
                                         int bytes, Barrier& full, uint64_t policy) {
  const int lane = threadIdx.x % 32;
  if (lane == 0) full.ArriveAndExpect(rows * bytes);
  __syncwarp();
  if (lane < rows) {
    BulkCopy(to + lane * kRowPitch, static_cast<const char*>(from) + lane * stride_bytes, bytes,
             full, policy);
  }
}

// The warp that copies weights: all of the block's in the order of use, pass by pass, span by span,
// group by group.
template <int kTiles>
__device__ __forceinline__ void CopyWeights(const Product& p, const Share& share,
                                            Shared<kTiles>& shared) {
  const uint64_t policy = EvictFirst();
  Ring<kWeightStages<kTiles>> at, landed;
  int filling = 0;
  for (int pass = 0; pass < share.passes; ++pass) {
    for (int column = 0; column < p.k; column += kSpan) {
      for (int group = share.PassBegin(pass); group < share.PassBegin(pass + 1); ++group) {
        if (filling == kInFlight) {
          shared.weights_full[landed.stage()].Wait(landed.parity());
          landed.Advance();
        } else {
          ++filling;
        }
        shared.weights_empty[at.stage()].Wait(at.parity() ^ 1);
        CopyRows(shared.weights[at.stage()],
                 static_cast<const char*>(p.w) + group * kGroupRows * p.w_stride * 2 + column * 2,
                 p.w_stride * 2, min(kGroupRows, p.n - group * kGroupRows),
                 min(kSpan, p.k - column) * 2, shared.weights_full[at.stage()], policy);
        at.Advance();
      }
    }
  }
}

// The warp that copies activations: all of them, for each pass again.
template <int kTiles>
__device__ __forceinline__ void CopyActivations(const Product& p, const Share& share,
                                                Shared<kTiles>& shared) {
  const uint64_t policy = EvictNormal();
  Ring<kActivationStages> at;
  for (int pass = 0; pass < share.passes; ++pass) {
    for (int column = 0; column < p.k; column += kSpan) {
      shared.activations_empty[at.stage()].Wait(at.parity() ^ 1);
      CopyRows(shared.activations[at.stage()], static_cast<const char*>(p.x) + column * 2,
               p.x_stride * 2, p.tokens, min(kSpan, p.k - column) * 2,
               shared.activations_full[at.stage()], policy);
      at.Advance();
    }
  }
}

__device__ __forceinline__ uint4 Read(const char* from) {
  return *reinterpret_cast<const uint4*>(from);
}
// Gives a stage back to the warp that fills it.
__device__ __forceinline__ void Release(Barrier& empty) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) empty.Arrive();
}

__device__ __forceinline__ void Multiply(float (&sum)[4], const uint4& low, const uint4& high,
                                         const uint4& x, __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(low.x), "r"(high.x), "r"(low.y), "r"(high.y), "r"(x.x), "r"(x.y));
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(low.z), "r"(high.z), "r"(low.w), "r"(high.w), "r"(x.z), "r"(x.w));
}
__device__ __forceinline__ void Multiply(float (&sum)[4], const uint4& low, const uint4& high,
                                         const uint4& x, __half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(low.x), "r"(high.x), "r"(low.y), "r"(high.y), "r"(x.x), "r"(x.y));
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(low.z), "r"(high.z), "r"(low.w), "r"(high.w), "r"(x.z), "r"(x.w));
}

template <int kTiles>
using Sums = float[kMaxGroups][kTiles][4];

// A multiplying warp's places in the two rings, and its lanes' places within a stage.
template <int kTiles>
class Operands {
 public:
  __device__ explicit Operands(Shared<kTiles>& shared)
      : shared_(shared),
        lane_(threadIdx.x % 32 / 4 * kRowPitch + threadIdx.x / 32 * kChunk * 2 +
              threadIdx.x % 4 * 16) {}

  __device__ __forceinline__ Activations<kTiles> NextActivations() {
    const int stage = activations_.stage();
    shared_.activations_full[stage].Wait(activations_.parity());
    const char* const from = shared_.activations[stage] + lane_;
    Activations<kTiles> x;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        x.at[tile][half] = Read(from + tile * kTileTokens * kRowPitch + half * 64);
      }
    }
    Release(shared_.activations_empty[stage]);
    activations_.Advance();
    return x;
  }
  __device__ __forceinline__ WeightUnit NextWeights() {
    const int stage = weights_.stage();
    shared_.weights_full[stage].Wait(weights_.parity());
    const char* const from = shared_.weights[stage] + lane_;
    WeightUnit w;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      w.at[half][0] = Read(from + half * 64);
      w.at[half][1] = Read(from + 8 * kRowPitch + half * 64);
    }
    Release(shared_.weights_empty[stage]);
    weights_.Advance();
    return w;
  }

 private:
  Shared<kTiles>& shared_;
  const int lane_;
  Ring<kActivationStages> activations_;
  Ring<kWeightStages<kTiles>> weights_;
};

// Adds a chunk of the pass's groups to the sums. `columns` of it exist: what the stages hold in
// place of the others may be anything.
template <typename T, int kTiles>
__device__ __forceinline__ void AddChunk(Sums<kTiles>& sums, int groups, int columns,
                                         Operands<kTiles>& operands) {
  Activations<kTiles> x = operands.NextActivations();
  const int column = threadIdx.x % 4 * 8;
#pragma unroll
  for (int group = 0; group < kMaxGroups; ++group) {
    if (group >= groups) break;
    WeightUnit w = operands.NextWeights();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool within = column + half * 32 < columns;
      if (columns < kChunk && !within) w.at[half][0] = w.at[half][1] = uint4{0, 0, 0, 0};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (columns < kChunk && !within) x.at[tile][half] = uint4{0, 0, 0, 0};
        Multiply(sums[group][tile], w.at[half][0], w.at[half][1], x.at[tile][half], T{});
      }
    }
  }
}

__device__ __forceinline__ void SyncMultipliers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kWarps * 32) : "memory");
}

// Adds the warps' sums of one pass, in the order of the warps, and stores them.
template <typename Out, int kTiles>
__device__ __forceinline__ void StoreSums(const Product& p, const Sums<kTiles>& sums, int begin,
                                          int end, Shared<kTiles>& shared) {
  constexpr int kGroupsAtOnce = kExchanged / kTiles;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = threadIdx.x % kGroupRows;
  const int token = threadIdx.x / kGroupRows % kTileTokens;
  const int part = threadIdx.x / (kGroupRows * kTileTokens);
#pragma unroll
  for (int first = 0; first < kMaxGroups; first += kGroupsAtOnce) {
    if (begin + first >= end) break;
    SyncMultipliers();  // the sums exchanged before these have been read
#pragma unroll
    for (int i = 0; i < kExchanged; ++i) {
      const float(&sum)[4] = sums[first + i / kTiles][i % kTiles];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        shared.sums[warp][i][lane % 4 * 2 + j % 2][lane / 4 + j / 2 * 8] = sum[j];
      }
    }
    SyncMultipliers();
    float total = shared.sums[0][part][token][row];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) total += shared.sums[i][part][token][row];
    const int group = begin + first + part / kTiles;
    const int t = part % kTiles * kTileTokens + token;
    const int r = group * kGroupRows + row;
    if (group < end && r < p.n && t < p.tokens) {
      if (p.bias != nullptr) total += ToFloat(static_cast<const Out*>(p.bias)[r]);
      static_cast<Out*>(p.out)[t * p.out_stride + r] = FromFloat<Out>(total);
    }
  }
}

// The multiplying warps: the passes one after the other.
template <typename T, typename Out, int kTiles>
__device__ __forceinline__ void MultiplyAndStore(const Product& p, const Share& share,
                                                 Shared<kTiles>& shared) {
  Operands<kTiles> operands(shared);
  for (int pass = 0; pass < share.passes; ++pass) {
    const int begin = share.PassBegin(pass), end = share.PassBegin(pass + 1);
    Sums<kTiles> sums = {};
    for (int column = threadIdx.x / 32 * kChunk; column < p.k + threadIdx.x / 32 * kChunk;
         column += kSpan) {
      AddChunk<T, kTiles>(sums, end - begin, p.k - column, operands);
    }
    StoreSums<Out, kTiles>(p, sums, begin, end, shared);
  }
}

template <typename T, typename Out, int kTiles>
__global__ void __launch_bounds__(kThreads, 2) SkinnyKernel(const __grid_constant__ Product p) {
  extern __shared__ __align__(128) char shared_bytes[];
  Shared<kTiles>& shared = *reinterpret_cast<Shared<kTiles>*>(shared_bytes);
  const Share share(DivideUp(p.n, kGroupRows), blockIdx.x, gridDim.x);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kWeightStages<kTiles>; ++i) {
      shared.weights_full[i].Init(1);
      shared.weights_empty[i].Init(kWarps);
    }
    for (int i = 0; i < kActivationStages; ++i) {
      shared.activations_full[i].Init(1);
      shared.activations_empty[i].Init(kWarps);
    }
    PublishBarriers();
  }
  __syncthreads();
  PdlTrigger();
  const int warp = threadIdx.x / 32;
  if (warp == kWarps) CopyWeights<kTiles>(p, share, shared);
  PdlWait();
  if (warp < kWarps) MultiplyAndStore<T, Out, kTiles>(p, share, shared);
  if (warp > kWarps) CopyActivations<kTiles>(p, share, shared);
}

size_t SharedBytes(int tokens) {
  return tokens <= kTileTokens ? sizeof(Shared<1>) : sizeof(Shared<2>);
}
template <typename T, typename Out>
auto KernelFor(int tokens) {
  return tokens <= kTileTokens ? SkinnyKernel<T, Out, 1> : SkinnyKernel<T, Out, 2>;
}

template <typename T, typename Out>
void Prepare() {
  for (int tokens : {1, kMaxSkinnyTokens}) {
    CUDA_CHECK(cudaFuncSetAttribute(KernelFor<T, Out>(tokens),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(SharedBytes(tokens))));
  }
}

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void PrepareSkinnyMatMul() {
  Prepare<__nv_bfloat16, __nv_bfloat16>();
  Prepare<__nv_bfloat16, float>();
  Prepare<__half, __half>();
  Prepare<__half, float>();
}

bool FitsSkinnyMatMul(const MatMulParams& p) {
  constexpr int64_t kMaxDim = int64_t{1} << 30;
  return p.w.dim[1] % 8 == 0 && p.w.row_stride % 8 == 0 && p.x.row_stride % 8 == 0 &&
         Aligned(p.x.data) && Aligned(p.w.data) && p.w.dim[0] < kMaxDim && p.w.dim[1] < kMaxDim;
}

void SkinnyMatMul(const MatMulParams& p, const Device& device) {
  CHECK(FitsSkinnyMatMul(p));
  CHECK(p.x.dim[0] >= 1 && p.x.dim[0] <= kMaxSkinnyTokens);
  const Product product{.x = p.x.data,
                        .w = p.w.data,
                        .bias = p.bias.data,
                        .out = p.out.data,
                        .tokens = static_cast<int>(p.x.dim[0]),
                        .n = static_cast<int>(p.w.dim[0]),
                        .k = static_cast<int>(p.w.dim[1]),
                        .x_stride = p.x.row_stride,
                        .w_stride = p.w.row_stride,
                        .out_stride = p.out.row_stride};
  const int groups = DivideUp(product.n, kGroupRows);
  const Grid grid{.blocks = static_cast<unsigned>(std::min(device.num_sms, groups)),
                  .threads = kThreads,
                  .shared_bytes = SharedBytes(product.tokens)};
  DispatchHalf(p.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (p.out.dtype == DType::kF32) {
      Launch(device, grid, KernelFor<T, float>(product.tokens), product);
    } else {
      CHECK(p.out.dtype == p.x.dtype);
      Launch(device, grid, KernelFor<T, T>(product.tokens), product);
    }
  });
}

}  // namespace quire::cuda

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
#include "kernels/cuda/matmul/skinny_matmul.h"

#include <algorithm>
#include <bit>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/weight_passes.cuh"
#include "kernels/cuda/matmul/skinny/activation_stream.cuh"
#include "kernels/cuda/matmul/skinny/skinny_layout.cuh"
#include "kernels/cuda/matmul/skinny/unit_products.cuh"
#include "kernels/cuda/matmul/skinny/weight_stream.cuh"
#include "kernels/row_scale.h"

namespace quire::cuda {
namespace {

using namespace skinny;

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
  if (threadIdx.x == kThreads) shared.predecessor.Clear();
  __syncthreads();
  if (threadIdx.x >= kThreads) {
    PdlWait();
    if (threadIdx.x == kThreads) shared.predecessor.Set();
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

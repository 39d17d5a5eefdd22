// RopeStoreKv: after the QKV product, normalises, rotates and stores. A head's row is D / 8 lanes
// of eight elements, so that the partner of an element, D / 2 away, lies D / 16 lanes away; a lane
// takes several heads of one token with one set of cosines and sines. Heads of 64 and 128 have
// kernels of their own. All other sizes share one, which gives a head the least power of two of
// lanes that holds it; the lanes past its row are idle. An 8-bit pool takes eight bytes of a lane.
#include <bit>

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/rows/eight_bit_row.cuh"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/cuda/rows/row_math.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

// Kv: the elements of the pool, T or __nv_fp8_e4m3.
template <typename T, typename Weight, typename Kv>
struct RopeArgs {
  T* qkv;
  int64_t stride;
  int32_t num_tokens, num_heads, num_kv_heads;
  int32_t groups;  // of heads a token; the same lanes take a group
  const int32_t* positions;
  int32_t max_position;
  const int64_t* slots;
  const float* cos_sin;
  const Weight* q_norm;  // or null
  const Weight* k_norm;  // or null
  float eps;
  Kv* kv;
  int64_t block_stride, kv_stride, head_stride, num_slots;
  int32_t log_block_size;
  bool settled;           // positions and slots may be read before the wait
  const float* k_scales;  // [num_kv_heads] of an 8-bit pool
  const float* v_scales;
};

// The lanes of a head of kDim dimensions, a power of two; 0: of as many as `dim` says.
template <int kDim>
struct HeadLanes {
  static constexpr int dim = kDim, count = kDim / 8;
  // `x` of the lane half a head away.
  __device__ __forceinline__ float Partner(float x) const {
    return __shfl_xor_sync(0xffffffffu, x, count / 2);
  }
};
template <>
struct HeadLanes<0> {
  int dim, count;
  __device__ __forceinline__ float Partner(float x) const {
    const int lane = static_cast<int>(threadIdx.x) % count, half = dim / 16;
    return __shfl_sync(0xffffffffu, x, lane < half ? lane + half : lane - half, count);
  }
};

template <typename T, typename Lanes, typename Weight>
__device__ __forceinline__ Eight Normalised(const Lanes& lanes, const Eight& x,
                                            const Packed<Weight>& norm, float eps) {
  const Eight weight = Unpack(norm);
  Eight y;
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < 8; ++j) squares = fmaf(x.at[j], x.at[j], squares);
  const float factor =
      rsqrtf(SumOfLanes(squares, lanes.count) / static_cast<float>(lanes.dim) + eps);
  // Rounds before the weight and after, as norms in Hugging Face transformers do.
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    y.at[j] = Rounded<T>(Rounded<T>(x.at[j] * factor) * weight.at[j]);
  }
  return y;
}

// Lanes of the first half hold x[i], those of the second x[i + D / 2]; `sin` is negative where the
// formula subtracts.
template <typename Lanes>
__device__ __forceinline__ Eight Rotated(const Lanes& lanes, const Eight& x, const Eight& cos,
                                         const Eight& sin) {
  Eight y;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    y.at[j] = x.at[j] * cos.at[j] + lanes.Partner(x.at[j]) * sin.at[j];
  }
  return y;
}

// The factor of the elements of a head of K or V; `head` counts those of Q too.
template <typename Args>
__device__ __forceinline__ float InverseOfHead(const Args& a, int head) {
  const int of_k = head - a.num_heads, of_v = of_k - a.num_kv_heads;
  return InverseOf(__ldg(of_v < 0 ? a.k_scales + of_k : a.v_scales + of_v));
}

// Blocks of a multiprocessor: as many as registers for everything of a lane allow.
template <typename T, int kDim, bool kNormalised>
constexpr int BlocksAtOnce() {
  if (kNormalised || sizeof(T) > 2) return 2;
  return kDim == 0 ? 3 : 4;
}

// A group of lanes takes kHeads neighbouring heads of one token.
template <typename T, typename Weight, typename Kv, int kDim, bool kNormalised, int kHeads>
__global__ void __launch_bounds__(kThreads, BlocksAtOnce<T, kDim, kNormalised>())
    RopeStoreKvKernel(RopeArgs<T, Weight, Kv> a, const HeadLanes<kDim> lanes) {
  PdlTrigger();
  if (!a.settled) PdlWait();
  const int own = threadIdx.x % lanes.count * 8;
  const bool idle = kDim == 0 && own >= lanes.dim;
  const int at = idle ? 0 : own;
  const int item = blockIdx.x * (kThreads / lanes.count) + threadIdx.x / lanes.count;
  const int token = item / a.groups;
  const int first = (item - token * a.groups) * kHeads;
  // All lanes of a warp must shuffle, so lanes past the last token compute on that token.
  const bool live = token < a.num_tokens;
  const int64_t t = live ? token : a.num_tokens - 1;
  const int rotated = a.num_heads + a.num_kv_heads;
  const int heads = live && !idle ? rotated + a.num_kv_heads : 0;

  const int64_t slot = a.slots[t];
  const int32_t position = a.positions[t];
  T* row = a.qkv + t * a.stride + at;
  Packed<T> x[kHeads];
  if constexpr (kDim == 0) {
#pragma unroll
    for (int i = 0; i < kHeads; ++i) x[i] = {};  // idle lanes add zeros to the sums
  }
  const auto load_heads = [&] {
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      if (first + i < heads) x[i] = LoadPacked(row + (first + i) * lanes.dim);
    }
  };
  if (!a.settled) load_heads();
  DeviceCheck(position >= 0 && position < a.max_position && slot >= 0 && slot < a.num_slots);
  const float* table = a.cos_sin + int64_t{position} * lanes.dim + at % (lanes.dim / 2);
  const Eight cos = LoadEight(table);
  Eight sin = LoadEight(table + lanes.dim / 2);
  // Asked for early, or the store would wait for memory. With several heads registers are short.
  float inverse = 0.0f;
  if constexpr (kEightBit<Kv> && kHeads == 1) {
    if (first >= a.num_heads && first < heads) inverse = InverseOfHead(a, first);
  }
  if (a.settled) {
    PdlWait();
    load_heads();
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) sin.at[j] = at < lanes.dim / 2 ? -sin.at[j] : sin.at[j];
  Kv* const place = a.kv + (slot >> a.log_block_size) * a.block_stride +
                    (slot & ((int64_t{1} << a.log_block_size) - 1)) * lanes.dim + at;
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    // A warp may have heads of Q, K and V. All lanes compute everything and store by the kind of
    // head.
    const int head = first + i;
    const bool is_q = head < a.num_heads;
    Eight y = Unpack(x[i]);
    if constexpr (kNormalised) {
      const Weight* norm = is_q ? a.q_norm : a.k_norm;
      const Packed<Weight> weight = norm != nullptr ? LoadPacked(norm + at) : Packed<Weight>();
      const Eight normalised = Normalised<T>(lanes, y, weight, a.eps);
      if (norm != nullptr) y = normalised;
    }
    y = Rotated(lanes, y, cos, sin);
    if (head >= heads) continue;
    if (is_q) {
      StoreEight(row + head * lanes.dim, y);
    } else if constexpr (kEightBit<Kv>) {
      Kv* const to = head < rotated ? place + (head - a.num_heads) * a.head_stride
                                    : place + a.kv_stride + (head - rotated) * a.head_stride;
      *reinterpret_cast<uint2*>(to) = PackEightBit<Kv>(
          head < rotated ? y : Unpack(x[i]), kHeads == 1 ? inverse : InverseOfHead(a, head));
    } else if (head < rotated) {
      StoreEight(place + (head - a.num_heads) * a.head_stride, y);
    } else {
      StorePacked(place + a.kv_stride + (head - rotated) * a.head_stride, x[i]);
    }
  }
}

template <typename T, typename Weight, typename Kv, bool kNormalised, int kDim>
void LaunchHeads(RopeArgs<T, Weight, Kv> args, const HeadLanes<kDim>& lanes, const Device& device) {
  constexpr int kMany = 4;
  const int heads = args.num_heads + 2 * args.num_kv_heads;
  const int64_t all = int64_t{args.num_tokens} * heads * lanes.count;
  // With more heads than the device has lanes, several heads of a lane share its cosines.
  const int each = all >= int64_t{device.num_sms} * 1024 * kMany ? kMany : 1;
  args.groups = CeilDiv(heads, each);
  const Grid grid{.blocks = Blocks(int64_t{args.num_tokens} * args.groups * lanes.count, kThreads),
                  .threads = kThreads};
  Launch(device, grid,
         each == 1 ? RopeStoreKvKernel<T, Weight, Kv, kDim, kNormalised, 1>
                   : RopeStoreKvKernel<T, Weight, Kv, kDim, kNormalised, kMany>,
         args, lanes);
}

template <typename T, typename Weight, typename Kv>
void LaunchRope(const RopeStoreKvParams& p, bool settled, const Device& device) {
  const RopeArgs<T, Weight, Kv> args{
      .qkv = p.qkv.ptr<T>(),
      .stride = p.qkv.row_stride,
      .num_tokens = static_cast<int32_t>(p.qkv.dim[0]),
      .num_heads = p.num_heads,
      .num_kv_heads = p.kv.num_kv_heads,
      .groups = 0,
      .positions = p.positions,
      .max_position = static_cast<int32_t>(p.cos_sin.dim[0]),
      .slots = p.slots,
      .cos_sin = p.cos_sin.ptr<float>(),
      .q_norm = p.q_norm.ptr<Weight>(),
      .k_norm = p.k_norm.ptr<Weight>(),
      .eps = p.norm_eps,
      .kv = static_cast<Kv*>(p.kv.base),
      .block_stride = p.kv.block_stride,
      .kv_stride = p.kv.kv_stride,
      .head_stride = p.kv.head_stride,
      .num_slots = int64_t{p.kv.num_blocks} * p.kv.block_size,
      .log_block_size = std::countr_zero(static_cast<uint32_t>(p.kv.block_size)),
      .settled = settled,
      .k_scales = p.kv.k_scales,
      .v_scales = p.kv.v_scales};
  const bool normalised = args.q_norm != nullptr || args.k_norm != nullptr;
  const auto launch = [&](auto lanes) {
    normalised ? LaunchHeads<T, Weight, Kv, true>(args, lanes, device)
               : LaunchHeads<T, Weight, Kv, false>(args, lanes, device);
  };
  const int32_t dim = p.kv.head_dim;
  if (dim == 128) return launch(HeadLanes<128>{});
  if (dim == 64) return launch(HeadLanes<64>{});
  launch(HeadLanes<0>{.dim = dim,
                      .count = static_cast<int>(std::bit_ceil(static_cast<uint32_t>(dim) / 8))});
}

}  // namespace

void RopeStoreKv(const RopeStoreKvParams& p, const Device& device, bool settled) {
  CheckRowsOfEights(p.qkv);
  const int64_t dim = p.kv.head_dim;
  static_assert(kCudaLimits.head_multiple % 16 == 0 && kCudaLimits.max_head_dim <= 32 * 8);
  CHECK(dim % 16 == 0 && 0 < dim && dim <= 32 * 8);
  CHECK_EQ(p.qkv.dim[1], (p.num_heads + 2 * p.kv.num_kv_heads) * dim);
  const bool eight_bit = p.kv.dtype == DType::kE4M3;
  CHECK(eight_bit || p.qkv.dtype == p.kv.dtype);
  CHECK_EQ(eight_bit, p.kv.k_scales != nullptr && p.kv.v_scales != nullptr);
  CHECK(p.cos_sin.dtype == DType::kF32);
  CHECK(p.cos_sin.dim[1] == dim && p.cos_sin.row_stride == dim);
  CHECK(std::has_single_bit(static_cast<uint32_t>(p.kv.block_size)));
  CHECK(p.kv.block_stride % 8 == 0 && p.kv.kv_stride % 8 == 0 && p.kv.head_stride % 8 == 0);
  for (const void* data : {p.kv.base, p.cos_sin.data, p.q_norm.data, p.k_norm.data}) {
    CHECK_EQ(reinterpret_cast<uintptr_t>(data) % 16, 0);
  }
  if (p.qkv.dim[0] == 0) return;
  const DType norm = !p.q_norm.empty() ? p.q_norm.dtype : p.k_norm.dtype;
  CHECK(p.q_norm.empty() || p.k_norm.empty() || p.q_norm.dtype == p.k_norm.dtype);
  if (eight_bit) {
    CHECK(norm == DType::kF32);
    return DispatchHalf(p.qkv.dtype, [&](auto tag) {
      LaunchRope<decltype(tag), float, __nv_fp8_e4m3>(p, settled, device);
    });
  }
  DispatchDevice(p.qkv.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (norm == p.qkv.dtype) return LaunchRope<T, T, T>(p, settled, device);
    CHECK(norm == DType::kF32);
    LaunchRope<T, float, T>(p, settled, device);
  });
}

}  // namespace quire::cuda

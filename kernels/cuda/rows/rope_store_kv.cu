// RopeStoreKv: after the QKV product, normalises, rotates and stores. A head's row is D / 8 lanes
// of eight elements, so that the partner of an element, D / 2 away, lies D / 16 lanes away; a lane
// takes several heads of one token with one set of cosines and sines.
#include <bit>

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/cuda/rows/row_math.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, typename Weight>
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
  T* kv;
  int64_t block_stride, kv_stride, head_stride, num_slots;
  int32_t log_block_size;
  bool settled;  // positions and slots may be read before the wait
};

// Sum over the kLanes lanes of a head's row, in an order that the lane numbers fix.
template <int kLanes>
__device__ __forceinline__ float SumOfHead(float x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

template <typename T, int kLanes, typename Weight>
__device__ __forceinline__ Eight Normalised(const Eight& x, const Packed<Weight>& norm, float eps) {
  const Eight weight = Unpack(norm);
  Eight y;
  float squares = 0.0f;
#pragma unroll
  for (int j = 0; j < 8; ++j) squares = fmaf(x.at[j], x.at[j], squares);
  const float factor = rsqrtf(SumOfHead<kLanes>(squares) / static_cast<float>(kLanes * 8) + eps);
  // Rounds before the weight and after, as norms in Hugging Face transformers do.
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    y.at[j] = Rounded<T>(Rounded<T>(x.at[j] * factor) * weight.at[j]);
  }
  return y;
}

// Lanes of the first half hold x[i], those of the second x[i + D / 2]; `sin` is negative where the
// formula subtracts.
template <int kLanes>
__device__ __forceinline__ Eight Rotated(const Eight& x, const Eight& cos, const Eight& sin) {
  Eight y;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float partner = __shfl_xor_sync(0xffffffffu, x.at[j], kLanes / 2);
    y.at[j] = x.at[j] * cos.at[j] + partner * sin.at[j];
  }
  return y;
}

// A group of lanes takes kHeads neighbouring heads of one token.
template <typename T, typename Weight, int kDim, bool kNormalised, int kHeads>
__global__ void __launch_bounds__(kThreads, kNormalised || sizeof(T) > 2 ? 2 : 4)
    RopeStoreKvKernel(RopeArgs<T, Weight> a) {
  constexpr int kLanes = kDim / 8;
  PdlTrigger();
  if (!a.settled) PdlWait();
  const int at = threadIdx.x % kLanes * 8;
  const int item = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes;
  const int token = item / a.groups;
  const int first = (item - token * a.groups) * kHeads;
  // All lanes of a warp must shuffle, so lanes past the last token compute on that token.
  const bool live = token < a.num_tokens;
  const int64_t t = live ? token : a.num_tokens - 1;
  const int rotated = a.num_heads + a.num_kv_heads;
  const int heads = live ? rotated + a.num_kv_heads : 0;

  const int64_t slot = a.slots[t];
  const int32_t position = a.positions[t];
  T* row = a.qkv + t * a.stride + at;
  Packed<T> x[kHeads];
  const auto load_heads = [&] {
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      if (first + i < heads) x[i] = LoadPacked(row + (first + i) * kDim);
    }
  };
  if (!a.settled) load_heads();
  DeviceCheck(position >= 0 && position < a.max_position && slot >= 0 && slot < a.num_slots);
  const float* table = a.cos_sin + int64_t{position} * kDim + at % (kDim / 2);
  const Eight cos = LoadEight(table);
  Eight sin = LoadEight(table + kDim / 2);
  if (a.settled) {
    PdlWait();
    load_heads();
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) sin.at[j] = at < kDim / 2 ? -sin.at[j] : sin.at[j];
  T* const place = a.kv + (slot >> a.log_block_size) * a.block_stride +
                   (slot & ((int64_t{1} << a.log_block_size) - 1)) * kDim + at;
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
      const Eight normalised = Normalised<T, kLanes>(y, weight, a.eps);
      if (norm != nullptr) y = normalised;
    }
    y = Rotated<kLanes>(y, cos, sin);
    if (head >= heads) continue;
    if (is_q) {
      StoreEight(row + head * kDim, y);
    } else if (head < rotated) {
      StoreEight(place + (head - a.num_heads) * a.head_stride, y);
    } else {
      StorePacked(place + a.kv_stride + (head - rotated) * a.head_stride, x[i]);
    }
  }
}

template <typename T, typename Weight, int kDim, bool kNormalised>
void LaunchHeads(RopeArgs<T, Weight> args, const Device& device) {
  constexpr int kMany = 4;
  const int heads = args.num_heads + 2 * args.num_kv_heads;
  const int64_t lanes = int64_t{args.num_tokens} * heads * (kDim / 8);
  // With more heads than the device has lanes, several heads of a lane share its cosines.
  const int each = lanes >= int64_t{device.num_sms} * 1024 * kMany ? kMany : 1;
  args.groups = CeilDiv(heads, each);
  const Grid grid{.blocks = Blocks(int64_t{args.num_tokens} * args.groups * (kDim / 8), kThreads),
                  .threads = kThreads};
  Launch(device, grid,
         each == 1 ? RopeStoreKvKernel<T, Weight, kDim, kNormalised, 1>
                   : RopeStoreKvKernel<T, Weight, kDim, kNormalised, kMany>,
         args);
}

template <typename T, typename Weight>
void LaunchRope(const RopeStoreKvParams& p, bool settled, const Device& device) {
  const RopeArgs<T, Weight> args{
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
      .kv = static_cast<T*>(p.kv.base),
      .block_stride = p.kv.block_stride,
      .kv_stride = p.kv.kv_stride,
      .head_stride = p.kv.head_stride,
      .num_slots = int64_t{p.kv.num_blocks} * p.kv.block_size,
      .log_block_size = std::countr_zero(static_cast<uint32_t>(p.kv.block_size)),
      .settled = settled};
  const bool normalised = args.q_norm != nullptr || args.k_norm != nullptr;
  if (p.kv.head_dim == 128) {
    normalised ? LaunchHeads<T, Weight, 128, true>(args, device)
               : LaunchHeads<T, Weight, 128, false>(args, device);
  } else {
    CHECK_EQ(p.kv.head_dim, 64);
    normalised ? LaunchHeads<T, Weight, 64, true>(args, device)
               : LaunchHeads<T, Weight, 64, false>(args, device);
  }
}

}  // namespace

void RopeStoreKv(const RopeStoreKvParams& p, const Device& device, bool settled) {
  CheckRowsOfEights(p.qkv);
  const int64_t dim = p.kv.head_dim;
  CHECK_EQ(p.qkv.dim[1], (p.num_heads + 2 * p.kv.num_kv_heads) * dim);
  CHECK(p.qkv.dtype == p.kv.dtype && p.cos_sin.dtype == DType::kF32);
  CHECK(p.cos_sin.dim[1] == dim && p.cos_sin.row_stride == dim);
  CHECK(std::has_single_bit(static_cast<uint32_t>(p.kv.block_size)));
  CHECK(p.kv.block_stride % 8 == 0 && p.kv.kv_stride % 8 == 0 && p.kv.head_stride % 8 == 0);
  for (const void* data : {p.kv.base, p.cos_sin.data, p.q_norm.data, p.k_norm.data}) {
    CHECK_EQ(reinterpret_cast<uintptr_t>(data) % 16, 0);
  }
  if (p.qkv.dim[0] == 0) return;
  const DType norm = !p.q_norm.empty() ? p.q_norm.dtype : p.k_norm.dtype;
  CHECK(p.q_norm.empty() || p.k_norm.empty() || p.q_norm.dtype == p.k_norm.dtype);
  DispatchDevice(p.qkv.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (norm == p.qkv.dtype) return LaunchRope<T, T>(p, settled, device);
    CHECK(norm == DType::kF32);
    LaunchRope<T, float>(p, settled, device);
  });
}

}  // namespace quire::cuda

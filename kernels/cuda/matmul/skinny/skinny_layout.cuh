// How SkinnyMatMul (skinny_matmul.cu) divides a product among warps, chunks and groups, and what a
// block keeps in shared memory.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/weight_passes.cuh"
#include "kernels/device_limits.h"
#include "kernels/row_scale.h"

namespace quire::cuda::skinny {

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
  PredecessorFlag predecessor;
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

}  // namespace quire::cuda::skinny

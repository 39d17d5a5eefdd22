// PackedBands: the kernels of a Work (bands/band_product.cuh) that multiplies packed weights. Work
// is a template of the type of activations, the bits of a weight and the groups of a chunk.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/matmul/bands/band_product.cuh"
#include "kernels/ops.h"
#include "kernels/packed_row.h"

namespace quire::cuda {

inline constexpr int kChunkColumns = ChunkColumns(8);
static_assert(kChunkColumns == ChunkColumns(4));
inline constexpr int kChunkSpans = kChunkColumns / kPackedColumns;
// Groups of a chunk, at most, with a scale and a zero for each row.
inline constexpr int kMostChunkGroups = kChunkSpans;

template <template <typename, int, int> class Work>
class PackedBands {
 public:
  // Call once per process and device, outside a capture.
  static void Prepare() {
    for (DType x : {DType::kBF16, DType::kF16}) {
      for (DType w : {DType::kU4, DType::kU8}) {
        for (int groups = 1; groups <= kMostChunkGroups; groups *= 2) {
          PrepareBandKernel(For(x, w, groups));
        }
      }
    }
  }

  // Enqueues a product that fits GroupedMatMul (grouped_matmul.h).
  static void Enqueue(const MatMulParams& p, const Device& device) {
    const int k = static_cast<int>(p.w.dim[1]), group = p.w.scale_columns;
    const BandProduct product{.x = p.x.data,
                              .x_scales = nullptr,
                              .w = {.weights = p.w.ptr<uint8_t>(),
                                    .scales = p.w.scales,
                                    .zeros = p.w.zeros,
                                    .rows = static_cast<int>(p.w.dim[0]),
                                    .k = k,
                                    .group_chunks = group == 0 ? CeilDiv(k, kChunkColumns)
                                                               : std::max(1, group / kChunkColumns),
                                    .scale_shift = 0,
                                    .wide_scales = true,
                                    .row_bytes = BytesOf(p.w.dtype, p.w.row_stride),
                                    .scale_stride = p.w.scale_stride},
                              .bias = p.bias.data,
                              .out = p.out.data,
                              .tokens = static_cast<int>(p.x.dim[0]),
                              .x_stride = p.x.row_stride,
                              .x_scale_stride = 0,
                              .out_stride = p.out.row_stride};
    const int groups = group == 0 ? 1 : std::max(1, kChunkColumns / group);  // of a chunk
    LaunchBands(For(p.x.dtype, p.w.dtype, groups), product, device);
  }

 private:
  template <typename T, int kBits>
  static SizedBandKernel For(int groups) {
    if (groups == 1) return BandKernelOf<Work<T, kBits, 1>>();
    if (groups == 2) return BandKernelOf<Work<T, kBits, 2>>();
    CHECK_EQ(groups, kMostChunkGroups);
    return BandKernelOf<Work<T, kBits, kMostChunkGroups>>();
  }
  static SizedBandKernel For(DType x, DType w, int groups) {
    return DispatchHalf(x, [&](auto tag) {
      using T = decltype(tag);
      return w == DType::kU4 ? For<T, 4>(groups) : For<T, 8>(groups);
    });
  }
};

}  // namespace quire::cuda

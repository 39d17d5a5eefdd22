// A block goes over rows of w, a thread over the same eight columns of each: one pair of each word
// of a vector.
#include "kernels/cuda/matmul/packed/expand_packed.h"

#include <algorithm>
#include <type_traits>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/matmul/packed/packed_weights.cuh"
#include "kernels/packed_row.h"

namespace quire::cuda {
namespace {

struct Packed {
  const uint8_t* rows;
  const float* scales;
  const uint8_t* zeros;  // null: the middle of the range
  int n, k;
  int group;  // columns that share a scale; at most k
  int64_t row_bytes, scale_stride;
};

constexpr int kExpandThreads = 256;
template <typename T, int kBits>
__global__ void __launch_bounds__(kExpandThreads)
    ExpandKernel(const __grid_constant__ Packed p, uint4* out) {
  PdlTrigger();
  PdlWait();                           // the product before this one may still read `out`
  constexpr int kEights = 16 / kBits;  // of a vector
  const int eights = p.k / 8;
  const int i = static_cast<int>(blockIdx.x) * kExpandThreads + static_cast<int>(threadIdx.x);
  if (i >= eights) return;
  for (int r = static_cast<int>(blockIdx.y); r < p.n; r += static_cast<int>(gridDim.y)) {
    const auto* const row = reinterpret_cast<const uint4*>(p.rows + r * p.row_bytes);
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

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void ExpandPacked(const TensorView& w, const TensorView& out, const Device& device) {
  CHECK(IsPacked(w.dtype) && w.dim[1] % kPackedColumns == 0 && w.row_stride % kPackedColumns == 0);
  CHECK(w.scale_rows == 1 && Aligned(w.data));
  CHECK(Aligned(out.data) && out.IsDense() && out.dim == w.dim);
  if (w.size() == 0) return;
  const int n = static_cast<int>(w.dim[0]), k = static_cast<int>(w.dim[1]);
  const Packed packed{.rows = w.ptr<uint8_t>(),
                      .scales = w.scales,
                      .zeros = w.zeros,
                      .n = n,
                      .k = k,
                      .group = w.scale_columns == 0 ? k : w.scale_columns,
                      .row_bytes = BytesOf(w.dtype, w.row_stride),
                      .scale_stride = w.scale_stride};
  constexpr int kMostBlocks = 65535;  // of the grid's second dimension
  const Grid grid{.blocks = {static_cast<unsigned>(CeilDiv(k / 8, kExpandThreads)),
                             static_cast<unsigned>(std::min(n, kMostBlocks))},
                  .threads = kExpandThreads};
  DispatchPacked(out.dtype, w.dtype, [&](auto tag, auto bits) {
    Launch(device, grid, ExpandKernel<decltype(tag), decltype(bits)::value>, packed,
           out.ptr<uint4>());
  });
}

}  // namespace quire::cuda

// AddScaled and Scale: sums and scales of rows, in floats, rounded once. Scale also takes logits,
// whose rows have any width and begin at any element.
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/rows/each_element.cuh"

namespace quire::cuda {
namespace {

struct PlusScaled {
  static constexpr int kOperands = 2;
  float scale;
  __device__ __forceinline__ float operator()(float x, float sum) const {
    return fmaf(scale, x, sum);
  }
};

template <typename T>
struct ScaleArgs {
  T* x;
  int64_t stride, width;
  int64_t rows;
  int64_t vectors;  // that a row may touch
  float factor, cap, inverse_cap;
};

// A row's vectors are those of its memory: the first and the last may lie partly outside it, and
// are then taken one by one.
template <typename T>
__global__ void __launch_bounds__(kElementThreads) ScaleKernel(ScaleArgs<T> a) {
  constexpr int kSize = Vector<T>::kSize;
  PdlTrigger();
  PdlWait();
  const int64_t item = int64_t{blockIdx.x} * kElementThreads + threadIdx.x;
  const int64_t row = item < a.vectors ? 0 : item / a.vectors;
  if (row >= a.rows) return;
  T* const x = a.x + row * a.stride;
  const auto before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(x) % 16 / sizeof(T));
  const int64_t at = (item - row * a.vectors) * kSize - before;
  const auto scaled = [&](T element) {
    const float y = ToFloat(element) * a.factor;
    return FromFloat<T>(a.cap > 0 ? a.cap * tanhf(y * a.inverse_cap) : y);
  };
  if (at >= 0 && at + kSize <= a.width) {
    Vector<T> vector = Load(x + at);
#pragma unroll
    for (int i = 0; i < kSize; ++i) vector.at[i] = scaled(vector.at[i]);
    Store(x + at, vector);
  } else {
    for (int i = 0; i < kSize; ++i) {
      if (at + i >= 0 && at + i < a.width) x[at + i] = scaled(x[at + i]);
    }
  }
}

}  // namespace

void AddScaled(const AddScaledParams& p, const Device& device) {
  EachElement(p.x, p.out, p.out, PlusScaled{p.scale}, device);
}

void Scale(const ScaleParams& p, const Device& device) {
  CHECK(p.x.rank == 2 && p.cap >= 0);
  if (p.x.size() == 0) return;
  const bool dense = p.x.IsDense();  // then it is one row
  DispatchDevice(p.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    constexpr int kSize = Vector<T>::kSize;
    const int64_t rows = dense ? 1 : p.x.dim[0], width = dense ? p.x.size() : p.x.dim[1];
    const int64_t vectors = CeilDiv<int64_t>(width + kSize - 1, kSize);
    Launch(device, {.blocks = Blocks(rows * vectors, kElementThreads), .threads = kElementThreads},
           ScaleKernel<T>,
           ScaleArgs<T>{.x = p.x.ptr<T>(),
                        .stride = p.x.row_stride,
                        .width = width,
                        .rows = rows,
                        .vectors = vectors,
                        .factor = p.factor,
                        .cap = p.cap,
                        .inverse_cap = p.cap > 0 ? 1 / p.cap : 0});
  });
}

}  // namespace quire::cuda

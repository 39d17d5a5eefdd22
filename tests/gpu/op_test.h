// Shared by the tests of row operations: their device, tensors on it, and repeated runs that must
// give the same bits.
#pragma once

#include <cstring>
#include <vector>

#include "kernels/cuda/device/cuda_kernels.h"
#include "tests/gpu/device_array.h"
#include "tests/kernels/cases.h"

namespace quire::gpu {

inline cuda::Device TestDevice(bool dependent_launch = true) {
  static const cuda::Device device = [] {
    cuda::Device d;
    CUDA_CHECK(cudaStreamCreate(&d.stream));  // in order with the copies of the default stream
    CUDA_CHECK(cudaDeviceGetAttribute(&d.num_sms, cudaDevAttrMultiProcessorCount, 0));
    return d;
  }();
  cuda::Device d = device;
  d.dependent_launch = dependent_launch;
  return d;
}

// A matrix on the device between canaries, its rows `gap` elements apart; 0xFF until set.
class DeviceTensor {
 public:
  DeviceTensor(DType dtype, int64_t rows, int64_t columns, int64_t gap = 0)
      : dtype_(dtype),
        rows_(rows),
        columns_(columns),
        stride_(columns + gap),
        bytes_(rows * stride_ * static_cast<int64_t>(SizeOf(dtype))) {}
  explicit DeviceTensor(DType dtype, int64_t rows, int64_t columns, Array& values, int64_t gap = 0)
      : DeviceTensor(dtype, rows, columns, gap) {
    Set(values);
  }

  TensorView view() const {
    TensorView v(bytes_.data(), dtype_, {rows_, columns_});
    v.row_stride = stride_;
    return v;
  }
  void Set(Array& values) {
    CHECK_EQ(values.byte_size(), Width() * static_cast<size_t>(rows_));
    CUDA_CHECK(cudaMemcpy2D(bytes_.data(), Pitch(), values.data(), Width(), Width(),
                            static_cast<size_t>(rows_), cudaMemcpyHostToDevice));
  }
  void Poison() { bytes_.Poison(); }
  // The contents. Fails the test if a canary or a gap was overwritten.
  Array Get() const {
    const std::vector<char> all = bytes_.Get();
    Array values(dtype_, {rows_, columns_});
    for (int64_t r = 0; r < rows_; ++r) {
      const char* row = all.data() + static_cast<size_t>(r) * Pitch();
      std::memcpy(static_cast<char*>(values.data()) + static_cast<size_t>(r) * Width(), row,
                  Width());
      for (size_t i = Width(); i < Pitch(); ++i) {
        if (row[i] != '\xFF') {
          ADD_FAILURE() << "written past row " << r;
          return values;
        }
      }
    }
    return values;
  }

 private:
  size_t Width() const { return static_cast<size_t>(columns_) * SizeOf(dtype_); }
  size_t Pitch() const { return static_cast<size_t>(stride_) * SizeOf(dtype_); }

  DType dtype_;
  int64_t rows_, columns_, stride_;
  DeviceArray<char> bytes_;
};

// Row `r` of a matrix, as bytes.
inline std::string RowBytes(Array& matrix, int64_t r, int64_t columns, DType dtype) {
  const size_t width = static_cast<size_t>(columns) * SizeOf(dtype);
  return {static_cast<const char*>(matrix.data()) + static_cast<size_t>(r) * width, width};
}

// Runs `fn(device)` many times, with and without dependent launch. `get` reads bytes that must be
// the same each time.
template <typename Fn, typename Get>
void ExpectSameBits(Fn fn, Get get) {
  fn(TestDevice());
  const auto first = get();
  for (int repeat = 0; repeat < 20; ++repeat) {
    fn(TestDevice(repeat % 2 == 0));
    ASSERT_TRUE(get() == first) << "repeat " << repeat;
  }
}

}  // namespace quire::gpu

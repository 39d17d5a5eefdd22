// PackedMatrix: random integers with scales and zeros, packed as packed_row.h says, and their
// values in double.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/packed_row.h"
#include "tests/kernels/cases.h"

namespace quire {

struct PackedShape {
  DType dtype = DType::kU4;
  int64_t n = 16, k = 128;
  int32_t group = 128;  // columns that share a scale; 0: all
  bool zeros = false;
};

class PackedMatrix {
 public:
  PackedMatrix(Random& random, const PackedShape& shape)
      : shape_(shape),
        blocks_(shape.group == 0 ? 1 : shape.k / shape.group),
        stride_(RoundUp<int64_t>(shape.n, 16)),
        bytes_(static_cast<size_t>(BytesOf(shape.dtype, shape.n * shape.k))),
        elements_(static_cast<size_t>(shape.n * shape.k)),
        scales_(static_cast<size_t>(blocks_ * stride_), NAN),
        zeros_(static_cast<size_t>(shape.zeros ? blocks_ * stride_ : 0), 0xff) {
    CHECK(shape.group == 0 || shape.k % shape.group == 0);
    const int64_t levels = shape.dtype == DType::kU4 ? 16 : 256;
    for (int64_t r = 0; r < shape.n; ++r) {
      uint8_t* const row = &bytes_[static_cast<size_t>(BytesOf(shape.dtype, r * shape.k))];
      for (int64_t c = 0; c < shape.k; ++c) {
        const auto element = static_cast<uint8_t>(random.Below(levels));
        elements_[static_cast<size_t>(r * shape.k + c)] = element;
        PutPacked(shape.dtype, row, c, element);
      }
      for (int64_t b = 0; b < blocks_; ++b) {
        const auto at = static_cast<size_t>(b * stride_ + r);
        // One in 16 is zero, as of a block that was all zeros.
        scales_[at] = random.Below(16) == 0 ? 0.0f : static_cast<float>(random.Uniform() * 0.01);
        if (shape.zeros) zeros_[at] = static_cast<uint8_t>(random.Below(levels));
      }
    }
  }

  const PackedShape& shape() const { return shape_; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  const std::vector<float>& scales() const { return scales_; }
  const std::vector<uint8_t>& zeros() const { return zeros_; }
  int64_t stride() const { return stride_; }

  // A view of these arrays, or of copies of them elsewhere.
  TensorView view() { return view(bytes_.data(), scales_.data(), zeros_.data()); }
  TensorView view(void* bytes, float* scales, const uint8_t* zeros) const {
    TensorView v(bytes, shape_.dtype, {shape_.n, shape_.k});
    v.scales = scales;
    v.scale_columns = shape_.group;
    v.scale_stride = stride_;
    v.zeros = shape_.zeros ? zeros : nullptr;
    return v;
  }
  double At(int64_t r, int64_t c) const {
    const int64_t block = shape_.group == 0 ? 0 : c / shape_.group;
    const auto at = static_cast<size_t>(block * stride_ + r);
    const int zero = shape_.zeros ? zeros_[at] : shape_.dtype == DType::kU4 ? 8 : 128;
    return double{scales_[at]} * (elements_[static_cast<size_t>(r * shape_.k + c)] - zero);
  }

 private:
  PackedShape shape_;
  int64_t blocks_, stride_;
  std::vector<uint8_t> bytes_, elements_;
  std::vector<float> scales_;
  std::vector<uint8_t> zeros_;
};

}  // namespace quire

// TensorView: a pointer, a dtype, its scales and up to four dimensions. Does not own the memory.
// Row-major and dense, but for the first dimension, which may have a stride: columns of a matrix
// are a view.
//
// The value of an element of an 8-bit matrix is the element times the scale of its block, which is
// scale_rows x scale_columns elements: usually a row. Of a matrix of weights a row is an output, of
// activations a token. The scales of one column of blocks follow each other.
//
// A packed matrix of integers (packed_row.h) has scales of blocks of one row, and its value is the
// scale times the element less the block's zero.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "kernels/check.h"
#include "kernels/dtype.h"

namespace quire {

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, 4> dim{};
  int64_t row_stride = 0;  // elements from one index of dim[0] to the next
  // Of an 8-bit or packed matrix, else null: element (r, c) has scale (c / scale_columns) *
  // scale_stride + r / scale_rows. Without scale_columns a block has all columns.
  float* scales = nullptr;
  int32_t scale_rows = 1;
  int32_t scale_columns = 0;
  int64_t scale_stride = 0;
  // Of a packed matrix, at the indices of the scales. Null: the middle of the elements' range, 8 of
  // kU4 and 128 of kU8.
  const uint8_t* zeros = nullptr;

  TensorView() = default;
  // A dense tensor over `data`.
  TensorView(void* data_in, DType dtype_in, std::initializer_list<int64_t> dims)
      : data(data_in), dtype(dtype_in), rank(static_cast<int>(dims.size())) {
    CHECK_LE(dims.size(), dim.size());
    int i = 0;
    row_stride = 1;
    for (int64_t d : dims) {
      if (i > 0) row_stride *= d;
      dim[i++] = d;
    }
  }

  bool empty() const { return data == nullptr; }
  // The rows follow each other without a gap.
  bool IsDense() const { return dim[0] <= 1 || row_stride * dim[0] == size(); }
  // Product of all dimensions.
  int64_t size() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dim[i];
    return n;
  }
  // Bytes of a dense tensor of this shape.
  int64_t bytes() const { return BytesOf(dtype, size()); }

  template <typename T>
  T* ptr() const {
    return static_cast<T*>(data);
  }
  // Row `i` of dimension 0, as T.
  template <typename T>
  T* row(int64_t i) const {
    return static_cast<T*>(data) + i * row_stride;
  }
  // Rows [begin, begin + count) of dimension 0; begin is a multiple of scale_rows.
  TensorView Rows(int64_t begin, int64_t count) const {
    TensorView view = *this;
    view.data = static_cast<char*>(data) + BytesOf(dtype, begin * row_stride);
    view.dim[0] = count;
    if (scales != nullptr) view.scales += begin / scale_rows;
    if (zeros != nullptr) view.zeros += begin / scale_rows;
    return view;
  }
  // The index of the scale of element (r, c).
  int64_t ScaleIndex(int64_t r, int64_t c) const {
    return (scale_columns > 0 ? c / scale_columns * scale_stride : 0) + r / scale_rows;
  }
  // Columns [begin, begin + count) of a matrix; begin is a multiple of scale_columns, and of a
  // packed matrix both are of kPackedColumns.
  TensorView Columns(int64_t begin, int64_t count) const {
    CHECK_EQ(rank, 2);
    TensorView view = *this;
    view.data = static_cast<char*>(data) + BytesOf(dtype, begin);
    view.dim[1] = count;
    const int64_t scale = scale_columns > 0 ? begin / scale_columns * scale_stride : 0;
    if (scales != nullptr) view.scales += scale;
    if (zeros != nullptr) view.zeros += scale;
    return view;
  }
};

}  // namespace quire

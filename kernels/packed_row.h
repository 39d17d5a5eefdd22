// The rows of a packed matrix: unsigned integers of 4 bits (kU4) or 8 (kU8) with scales and zeros
// for blocks of columns (tensor.h). Every published packing becomes this one when it is loaded, and
// the kernels of all devices read it.
//
// Rows lie as in any matrix: row-major, k / 2 or k bytes each, k a multiple of kPackedColumns. Of
// 16 columns the matrix units of a GPU expect lane q of four to hold 2q, 2q + 1, 2q + 8 and 2q + 9.
// So that a lane finds its elements in one 32-bit word:
//
//   kU4: 16 bytes are 32 columns. Word q has the lane's pairs (2q, 2q + 1) + 8p for p = 0 to 3, the
//        first element of pair p in bits 4p to 4p + 3 and the second 16 bits above it. Shifted by
//        4p, a mask leaves the pair in the low bits of two 16-bit halves, where a constant makes
//        both of them floats.
//   kU8: 16 bytes are 16 columns. Word q has 2q, 2q + 1, 2q + 8 and 2q + 9, a byte each.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/tensor.h"

namespace quire {

inline constexpr int kPackedColumns = 32;  // columns come in runs of these

// The zero of blocks that have none stored.
constexpr uint8_t MiddleOf(DType dtype) { return dtype == DType::kU4 ? 8 : 128; }

// The place of a column in its row: a byte, and the bits of it that are the element's.
struct PackedPlace {
  int64_t byte;
  int shift;  // 0, or 4 for the upper half of a byte

  constexpr PackedPlace(DType dtype, int64_t column) : byte(0), shift(0) {
    const int64_t lane = column % 8 / 2, second = column % 2;
    if (dtype == DType::kU4) {
      const int64_t pair = column % 32 / 8;
      byte = column / 32 * 16 + lane * 4 + second * 2 + pair / 2;
      shift = static_cast<int>(pair % 2 * 4);
    } else {
      byte = column / 16 * 16 + lane * 4 + column % 16 / 8 * 2 + second;
    }
  }
};

// Ors an element into a row of zeros.
inline void PutPacked(DType dtype, uint8_t* row, int64_t column, uint32_t element) {
  const PackedPlace place(dtype, column);
  row[place.byte] = static_cast<uint8_t>(row[place.byte] | element << place.shift);
}
inline uint32_t GetPacked(DType dtype, const uint8_t* row, int64_t column) {
  const PackedPlace place(dtype, column);
  return row[place.byte] >> place.shift & (dtype == DType::kU4 ? 15 : 255);
}

// The values of row r of a packed matrix: out[c] = scale * (element - zero), rounded once.
inline void WidenPackedRow(const TensorView& w, int64_t r, float* out) {
  const int64_t k = w.dim[1], block = w.scale_columns > 0 ? w.scale_columns : k;
  const uint8_t* const row = w.ptr<uint8_t>() + BytesOf(w.dtype, r * w.row_stride);
  float values[16];
  for (int64_t begin = 0; begin < k; begin += block) {
    const int64_t index = begin / block * w.scale_stride + r / w.scale_rows;
    const float scale = w.scales[index];
    const int zero = w.zeros == nullptr ? MiddleOf(w.dtype) : w.zeros[index];
    const int64_t end = begin + block < k ? begin + block : k;
    if (w.dtype == DType::kU8) {
      for (int64_t c = begin; c < end; ++c) {
        out[c] = scale * static_cast<float>(static_cast<int>(GetPacked(w.dtype, row, c)) - zero);
      }
      continue;
    }
    for (int q = 0; q < 16; ++q) values[q] = scale * static_cast<float>(q - zero);
    for (int64_t c = begin; c < end; c += kPackedColumns) {
      for (int64_t i = 0; i < kPackedColumns; ++i) {
        out[c + i] = values[GetPacked(DType::kU4, row + c / 2, i)];
      }
    }
  }
}

}  // namespace quire

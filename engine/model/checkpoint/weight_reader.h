// WeightReader: reads rectangles of stored tensors into device memory with several threads:
// straight into place where the device's memory is host memory, else through pinned buffers, so
// that reading and copying overlap.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/checkpoint/safetensors.h"
#include "engine/model/checkpoint/tp.h"
#include "kernels/backend.h"

namespace quire {

// A rectangle of a stored matrix: some rows, and some of their columns; a vector is a matrix of one
// column. On the device it is converted to `to`, and zeros fill its rows up to `width`. Where it
// becomes 8-bit, whole stored rows decide the scales. What is no rectangle is made by a function.
struct WeightPiece {
  const std::string* name = nullptr;  // in the checkpoint
  DType from = DType::kF32;
  DType to = DType::kF32;
  int64_t stored_width = 1;  // columns of the stored matrix
  ShardRange rows;
  ShardRange columns;
  int64_t width = 1;  // at least columns.count
  // Not empty: in each run of as many rows, row i of the result is row order[i] of the stored ones.
  std::span<const int32_t> order;
  char* device = nullptr;
  float* scales = nullptr;  // on the device, of the rows of a piece that becomes 8-bit
  bool are_scales = false;  // the elements are scales: each must be finite and above 0
  bool repeats = false;     // the matrix has one row, which every row of the result repeats

  // Not null: writes the piece, `made_bytes` bytes, by reading about `read_bytes` of files. Calls
  // come from any thread; `scratch` is reused. All members above but `device` are unused then.
  std::function<absl::Status(const Checkpoint&, char* out, std::vector<char>& scratch)> make;
  int64_t made_bytes = 0;
  int64_t read_bytes = 0;

  bool becomes_eight_bit() const { return to == DType::kE4M3 && from != DType::kE4M3; }
  int64_t stored_bytes() const {
    return (repeats ? 1 : rows.count) * stored_width * static_cast<int64_t>(SizeOf(from));
  }
  // On the device: of the elements, and of the scales that are made of them.
  int64_t bytes() const {
    if (make != nullptr) return made_bytes;
    return rows.count * width * static_cast<int64_t>(SizeOf(to));
  }
  int64_t scale_bytes() const {
    return becomes_eight_bit() ? rows.count * static_cast<int64_t>(sizeof(float)) : 0;
  }
};

struct WeightReading {
  int32_t threads = 1;    // to read and convert
  bool in_place = false;  // the host can write to the pieces' device addresses
};

// Most stored bytes that one thread reads at a time, but at least a row or a run of rows that
// change places. AddPieces cuts `whole` into such pieces.
inline constexpr int64_t kMaxPieceBytes = int64_t{8} << 20;
void AddPieces(const WeightPiece& whole, std::vector<WeightPiece>& pieces);

// Reads all pieces, which must lie inside their tensors and not overlap on the device. Returns the
// first error in the order of the pieces, with file and tensor; RESOURCE_EXHAUSTED without memory
// for the buffers. Calls the backend on the caller's thread only.
absl::Status ReadWeights(const Checkpoint& checkpoint, const std::vector<WeightPiece>& pieces,
                         const WeightReading& how, Backend& backend);

}  // namespace quire

// Reads rectangles of stored tensors into device memory, by several threads: straight into place
// where the device's memory is the host's, else through pinned buffers, so that files are read
// while others are copied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/checkpoint/safetensors.h"
#include "engine/model/checkpoint/tp.h"
#include "kernels/backend.h"

namespace quire {

// Some rows of a stored matrix, and the columns of them that are wanted; a vector is a matrix of
// one column. They go to the device densely, as `to`.
struct WeightPiece {
  const std::string* name = nullptr;  // in the checkpoint
  DType from = DType::kF32;
  DType to = DType::kF32;
  int64_t stored_width = 1;  // columns of the stored matrix
  ShardRange rows;
  ShardRange columns;
  char* device = nullptr;

  int64_t stored_bytes() const {
    return rows.count * stored_width * static_cast<int64_t>(SizeOf(from));
  }
  int64_t bytes() const { return rows.count * columns.count * static_cast<int64_t>(SizeOf(to)); }
};

struct WeightReading {
  int32_t threads = 1;    // that read and convert
  bool in_place = false;  // pieces' device addresses can be written by the host
};

// Cut a piece into such of at most so many stored bytes: what one thread reads at a time.
inline constexpr int64_t kMaxPieceBytes = int64_t{8} << 20;
void AddPieces(const WeightPiece& whole, std::vector<WeightPiece>& pieces);

// Reads all pieces; they must lie inside their tensors and not overlap on the device. The first
// error in the order of the pieces, which names file and tensor; RESOURCE_EXHAUSTED when there is
// no memory for the buffers. The caller's thread alone calls the backend.
absl::Status ReadWeights(const Checkpoint& checkpoint, const std::vector<WeightPiece>& pieces,
                         const WeightReading& how, Backend& backend);

}  // namespace quire

// WriteNarrowed: a checkpoint as a writer of narrow formats would store it, rounded to nearest, to
// measure formats in which Quire stores nothing itself.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace quire {

enum class NarrowForm {
  kFp8Blocks,   // e4m3, a scale for each 128 x 128 block: as DeepSeek and Qwen publish
  kInt8Rows,    // 8-bit integers, a scale for each row; inputs of products become 8-bit too
  kInt8Groups,  // 8-bit integers, a scale for each 128 columns of a row; inputs stay wide
  kInt4Groups,  // the same of 4 bits
};

// Writes config.json and model.safetensors to `dir`: the model's, with the matrices of its layers
// in `form`. Other tensors stay as they are. The model has one file of weights, wide and with
// llama's names, and for groups its matrices have a multiple of 128 columns.
absl::Status WriteNarrowed(const std::string& model, NarrowForm form, const std::string& dir);

}  // namespace quire

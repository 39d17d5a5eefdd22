// WriteNarrowed: a checkpoint as a writer of narrow formats would store it, rounded to nearest, to
// measure formats in which Quire stores nothing itself.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "engine/model/checkpoint/quantization.h"

namespace quire {

// Writes config.json and model.safetensors to `dir`: the model's, with the matrices of its layers
// in `encoding`, a scale for each block or row. Other tensors stay as they are. The model has one
// file of weights, wide and with llama's names.
absl::Status WriteNarrowed(const std::string& model, Encoding encoding, const std::string& dir);

}  // namespace quire

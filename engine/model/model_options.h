// ModelOptions: how a rank holds and runs a model, beside what config.json says of it.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace quire {

struct ModelOptions {
  DType weight_dtype = DType::kF32;  // matrices are converted on load when stored otherwise
  // What is computed between them, and what biases are held in; the CPU backend knows float32
  // alone, whatever the weights.
  DType activation_dtype = DType::kF32;
  bool dummy_weights = false;  // random ones of the right shapes: no safetensors are read
  int32_t max_tokens = 0;      // largest T of any step: sizes the activation arena
  int32_t max_logit_rows = 0;  // largest R
  int32_t max_model_len = 0;   // positions of the rope table
  // The device's memory is the host's: files are read straight into it.
  bool weights_in_place = false;
  int32_t load_threads = 1;  // that read files
};

}  // namespace quire

// ModelOptions: how a rank holds and runs a model; config.json describes the model itself.
#pragma once

#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/dtype.h"

namespace quire {

struct ModelOptions {
  DType weight_dtype = DType::kF32;  // matrices are converted on load when stored otherwise
  // Type of activations and biases; float32 on the CPU backend, whatever the weights.
  DType activation_dtype = DType::kF32;
  bool eight_bit_kv = false;   // the heads of keys and values have scales
  bool dummy_weights = false;  // random weights of the right shapes; reads no safetensors
  int32_t max_tokens = 0;      // largest T of any step: sizes the activation arena
  int32_t max_logit_rows = 0;  // largest R
  int32_t max_model_len = 0;   // positions of the rope table
  // The device's memory is host memory: files are read straight into it.
  bool weights_in_place = false;
  int32_t load_threads = 1;  // threads that read files
  // The device's (kernels/device_limits.h): the feed-forward layer of a rank is padded to a
  // multiple of this, with weights of zero, so that no result changes.
  int32_t width_multiple = 1;
};

// A rank's share of intermediate_size as its device computes it.
inline int64_t PaddedWidth(int64_t share, const ModelOptions& options) {
  return RoundUp(share, int64_t{options.width_multiple});
}

}  // namespace quire

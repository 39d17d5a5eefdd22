// KvLayout: the shape of one rank's KV blocks. A block is one contiguous run over all layers,
// [layer][k/v][head_local][token][dim], the same on the device and in host memory.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace quire {

struct KvLayout {
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;  // of this rank
  int32_t head_dim = 0;
  int32_t block_size = 0;  // tokens
  DType dtype = DType::kF32;

  // Bytes of one block over all layers, K and V.
  int64_t block_bytes() const {
    return int64_t{2} * num_layers * num_kv_heads * block_size * head_dim *
           static_cast<int64_t>(SizeOf(dtype));
  }
};

}  // namespace quire

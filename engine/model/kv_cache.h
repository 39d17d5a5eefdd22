// KvCache: one rank's paged K/V pool, laid out [block][layer][k/v][head_local][token][dim] in one
// allocation. A block is one contiguous run over all layers: one copy moves it. Block 0 is the null
// block. The scheduler owns block ids; this owns bytes.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

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

class KvCache {
 public:
  // RESOURCE_EXHAUSTED with the sizes when the device has too little memory.
  static absl::StatusOr<KvCache> Create(Backend& backend, const KvLayout& layout,
                                        int32_t num_blocks);

  KvLayerView layer(int32_t index) const;
  const KvLayout& layout() const { return layout_; }
  int32_t num_blocks() const { return num_blocks_; }
  // The contiguous bytes of one block.
  void* block_data(int32_t block) const;

 private:
  KvLayout layout_;
  int32_t num_blocks_ = 0;
  Buffer pool_;
};

}  // namespace quire

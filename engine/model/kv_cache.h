// KvCache: one rank's paged K/V pool, laid out [block][layer][k/v][head_local][token][dim] in one
// allocation. A block is one contiguous run over all layers: one copy moves it. Block 0 is the null
// block. The scheduler owns the block ids, this class the bytes.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/model/kv_layout.h"
#include "kernels/backend.h"

namespace quire {

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

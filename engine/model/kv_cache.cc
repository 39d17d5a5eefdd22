// The pool of blocks and the strides of its layers.
#include "engine/model/kv_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace quire {

absl::StatusOr<KvCache> KvCache::Create(Backend& backend, const KvLayout& layout,
                                        int32_t num_blocks) {
  CHECK(layout.num_layers > 0 && layout.num_kv_heads > 0 && layout.head_dim > 0);
  CHECK(layout.block_size > 0 && num_blocks > 0);
  int64_t bytes = 0;
  const bool overflows = __builtin_mul_overflow(layout.block_bytes(), int64_t{num_blocks}, &bytes);
  KvCache cache;
  if (!overflows) cache.pool_ = backend.Allocate(static_cast<size_t>(bytes));
  if (cache.pool_.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the device has no room for a KV cache of ", num_blocks, " blocks of ",
        layout.block_bytes(), " bytes (", layout.block_size,
        " tokens): lower --kv-cache-memory-bytes or "
        "--num-blocks-override, or raise the memory limit of the container, if there is one"));
  }
  cache.layout_ = layout;
  cache.num_blocks_ = num_blocks;
  return cache;
}

KvLayerView KvCache::layer(int32_t index) const {
  CHECK(0 <= index && index < layout_.num_layers);
  const int64_t head_stride = int64_t{layout_.block_size} * layout_.head_dim;
  const int64_t kv_stride = head_stride * layout_.num_kv_heads;
  const int64_t layer_stride = 2 * kv_stride;
  const int64_t offset = index * layer_stride * static_cast<int64_t>(SizeOf(layout_.dtype));
  return {.base = static_cast<char*>(pool_.data()) + offset,
          .dtype = layout_.dtype,
          .block_stride = layer_stride * layout_.num_layers,
          .kv_stride = kv_stride,
          .head_stride = head_stride,
          .block_size = layout_.block_size,
          .num_blocks = num_blocks_,
          .num_kv_heads = layout_.num_kv_heads,
          .head_dim = layout_.head_dim};
}

void* KvCache::block_data(int32_t block) const {
  CHECK(0 <= block && block < num_blocks_);
  return static_cast<char*>(pool_.data()) + block * layout_.block_bytes();
}

}  // namespace quire

// Neighbouring ranks hold neighbouring shards of a row, so a division finds the rank of a byte.
#include "server/session/kv_runs.h"

#include "engine/model/checkpoint/tp.h"
#include "kernels/check.h"

namespace quire {

std::span<std::byte> KvRun::In(std::span<std::byte> page) const {
  CHECK_LE(offset + bytes, static_cast<int64_t>(page.size()));
  return page.subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes));
}

KvRuns::KvRuns(const Block& block, int32_t ranks) : block_bytes_(block.bytes) {
  CHECK(block.num_layers > 0 && block.num_kv_heads > 0 && ranks > 0);
  const int64_t heads = KvShard(block.num_kv_heads, {.rank = 0, .size = ranks}).count;
  const int64_t shards = block.num_kv_heads / heads;
  row_bytes_ = block.bytes / (int64_t{2} * block.num_layers);
  shard_bytes_ = row_bytes_ / shards;
  replicas_ = static_cast<int32_t>(ranks / shards);
}

KvRun KvRuns::At(int64_t offset) const {
  DCHECK(0 <= offset && offset < block_bytes_);
  if (shard_bytes_ == row_bytes_) {
    return {.num_ranks = replicas_, .offset = offset, .bytes = block_bytes_ - offset};
  }
  const int64_t row = offset / row_bytes_;
  const int64_t shard = offset % row_bytes_ / shard_bytes_;
  const int64_t in_shard = offset % row_bytes_ % shard_bytes_;
  return {.first_rank = static_cast<int32_t>(shard) * replicas_,
          .num_ranks = replicas_,
          .offset = row * shard_bytes_ + in_shard,
          .bytes = shard_bytes_ - in_shard};
}

}  // namespace quire

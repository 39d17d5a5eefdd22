// TpInfo, Shard, KvShard: all of tensor parallelism: the rank, and the slice of a dimension that it
// holds.
#pragma once

#include <cstdint>

#include "kernels/check.h"

namespace quire {

struct TpInfo {
  int32_t rank = 0;
  int32_t size = 1;
};

// The rank's part of a dimension that divides evenly.
struct ShardRange {
  int64_t begin = 0;
  int64_t count = 0;
};

inline ShardRange Shard(int64_t total, TpInfo tp) {
  CHECK_EQ(total % tp.size, 0);
  const int64_t count = total / tp.size;
  return {tp.rank * count, count};
}

// The rank's key/value heads. Where there are fewer heads than ranks, neighbouring ranks hold the
// same head: the one that their query heads read.
inline ShardRange KvShard(int64_t num_kv_heads, TpInfo tp) {
  if (num_kv_heads >= tp.size) return Shard(num_kv_heads, tp);
  CHECK_EQ(tp.size % num_kv_heads, 0);
  return {tp.rank / (tp.size / num_kv_heads), 1};
}

}  // namespace quire

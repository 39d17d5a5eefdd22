// TpInfo, Shard: all of tensor parallelism: the rank, and the slice of a dimension that it holds.
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

}  // namespace quire

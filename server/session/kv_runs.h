// KvRuns: where the bytes of a block of the whole model's KV lie in the pages of the ranks.
//
// A block in a file is [layer][k/v][head][token][dim] with all heads of the model. A rank's page
// has the same order with the rank's heads (KvShard). One rank holds all heads: its page is the
// block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

// Consecutive bytes of a block. They lie at the same offset in the page of each of `num_ranks`
// ranks, which hold replicas of one head if they are several.
struct KvRun {
  int32_t first_rank = 0;
  int32_t num_ranks = 1;
  int64_t offset = 0;  // in the page of a rank
  int64_t bytes = 0;

  // The run's part of a page of one of its ranks.
  std::span<std::byte> In(std::span<std::byte> page) const;
};

// Immutable, so any thread may use it.
class KvRuns {
 public:
  // A block of the whole model.
  struct Block {
    int64_t bytes = 0;
    int32_t num_layers = 0;
    int32_t num_kv_heads = 0;
  };

  // Requires a block with layers and heads, and ranks among which KvShard can divide the heads.
  KvRuns(const Block& block, int32_t ranks);
  // The longest run that begins at byte `offset` of the block; 0 <= offset < the block's bytes.
  KvRun At(int64_t offset) const;

 private:
  int64_t block_bytes_;
  int64_t row_bytes_;    // of one layer's K or V: all heads
  int64_t shard_bytes_;  // of a row, in one rank
  int32_t replicas_;     // ranks that hold the same shard
};

}  // namespace quire

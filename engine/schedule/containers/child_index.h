// ChildIndex: finds the child of a node that spells given tokens, by hash and then by exact
// comparison, so that what is found is a fact. The hash is multilinear over random keys: no choice
// of tokens made without knowing them collides more often than chance, and what collides costs
// only time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/containers/id_lists.h"

namespace quire {

class ChildIndex {
 public:
  // For nodes 0 to num_nodes - 1. `seed` makes the keys; with 0 all hashes are equal.
  ChildIndex(int32_t num_nodes, int32_t block_size, uint64_t seed);
  // For more nodes. O(nodes).
  void Grow(int32_t num_nodes);

  // IdLists::kNone if there is none. `tokens` are a block's here and below.
  int32_t Find(int32_t parent, std::span<const int32_t> tokens) const;
  // Requires that `node` is not in the index, nor an equal one.
  void Insert(int32_t node, int32_t parent, std::span<const int32_t> tokens);
  // Requires that `node` is in the index.
  void Erase(int32_t node) { buckets_.Erase(node); }
  bool Contains(int32_t node) const { return buckets_.Contains(node); }
  // Of a node that is or was in the index.
  std::span<const int32_t> TokensOf(int32_t node) const {
    return {&keys_[size_t(node) * (block_size_ + 1) + 1], size_t(block_size_)};
  }

 private:
  int32_t ParentOf(int32_t node) const { return keys_[size_t(node) * (block_size_ + 1)]; }
  int32_t BucketOf(int32_t parent, std::span<const int32_t> tokens) const;

  const int32_t block_size_;
  std::vector<uint64_t> factors_;  // of a constant, the parent and each token
  int32_t bucket_bits_ = 0;
  IdLists buckets_;            // of nodes; a power of two, at least as many as nodes
  std::vector<int32_t> keys_;  // per node its parent and its tokens
};

}  // namespace quire

// ChildIndex: finds the child of a node that spells given tokens, by hash and then by exact
// comparison. The hash is multilinear over random keys: tokens chosen without knowing the keys
// collide no more often than by chance, and a collision costs only time. One thread. Only Grow
// allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/containers/id_lists.h"

namespace quire {

class ChildIndex {
 public:
  // For nodes 0 to num_nodes - 1. The keys come from `seed`; with 0 all hashes are equal.
  ChildIndex(int32_t num_nodes, int32_t block_size, uint64_t seed);
  // Makes room for more nodes. O(nodes).
  void Grow(int32_t num_nodes);

  // IdLists::kNone if there is none. Here and below `tokens` are a whole block.
  int32_t Find(int32_t parent, std::span<const int32_t> tokens) const;
  // Requires that neither `node` nor a node with the same parent and tokens is in the index.
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
  std::vector<uint64_t> factors_;  // for a constant, the parent and each token
  int32_t bucket_bits_ = 0;
  IdLists buckets_;            // of nodes; a power of two, at least as many as nodes
  std::vector<int32_t> keys_;  // per node its parent and its tokens
};

}  // namespace quire

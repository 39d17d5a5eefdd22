// Lookup and growth.
#include "engine/schedule/kv/prefix_tree.h"

#include <random>

#include "kernels/check.h"

namespace quire {
namespace {

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device() | 1;
}

}  // namespace

PrefixTree::PrefixTree(BlockPool& pool, int32_t block_size, int32_t num_pages)
    : PrefixTree(pool, block_size, num_pages, RandomSeed()) {}

PrefixTree::PrefixTree(BlockPool& pool, int32_t block_size, int32_t num_pages, uint64_t hash_seed)
    : pool_(pool),
      block_size_(block_size),
      nodes_(pool, block_size, num_pages, hash_seed),
      host_(pool, nodes_),
      events_(nodes_) {
  pool.SetReclaimer(this);
}

NodeId PrefixTree::Find(TenantId tenant, std::span<const int32_t> tokens) {
  NodeId node = nodes_.FindOrAddRoot(tenant);
  while (tokens.size() >= static_cast<size_t>(block_size_)) {
    const NodeId child = nodes_.tree().Child(node, tokens.first(block_size_));
    if (child == kNoNode || !HasKv(child)) break;
    node = child;
    tokens = tokens.subspan(block_size_);
  }
  return node;
}

PrefixTree::Inserted PrefixTree::Insert(NodeId parent, std::span<const int32_t> tokens,
                                        BlockId block) {
  CHECK(Held(parent) && !IsTail(parent));
  CHECK(pool_.state(block) == BlockState::kTaken);
  NodeId id = nodes_.tree().Child(parent, tokens);
  if (id == kNoNode) {
    id = nodes_.AddChild(parent, tokens);
  } else if (Kv(id).block != kNullBlock) {
    if (Held(id)) {
      Hold(id);
      return {id, false};
    }
    // The caller's block takes the place of one without holders, so that no more blocks are in use
    // than before.
    nodes_.FreeBlock(id);
  }
  Hold(id);
  nodes_.SetBlock(id, block, /*loading=*/false);
  return {id, true};
}

NodeId PrefixTree::InsertTail(NodeId parent, int32_t filled, BlockId block) {
  CHECK(Held(parent) && !IsTail(parent));
  const NodeId tail = nodes_.AddTail(parent, filled);
  Hold(tail);
  nodes_.SetBlock(tail, block, /*loading=*/false);
  return tail;
}

FlushedCache PrefixTree::Flush(const CacheFlush& flush) {
  const NodeTree& tree = nodes_.tree();
  const int32_t free_blocks = pool_.num_free(), free_pages = nodes_.pages().num_free();
  for (NodeId root = 0; root < tree.num_nodes(); ++root) {
    if (!tree.IsRoot(root)) continue;
    if (flush.tenant.has_value() && *flush.tenant != tree.Key(root)) continue;
    for (NodeId id = tree.FirstLeaf(root), next; id != root; id = next) {
      next = tree.NextInPostOrder(id, root);
      const bool wanted = Held(id) || (nodes_.keepers().Kept(id) && !flush.sessions);
      if (!wanted) nodes_.ForgetSubtree(id);
    }
  }
  return {.blocks = pool_.num_free() - free_blocks,
          .pages = nodes_.pages().num_free() - free_pages,
          .kept_blocks = pool_.total() - pool_.num_free(),
          .kept_pages = nodes_.pages().num_ready() - nodes_.pages().num_free()};
}

}  // namespace quire

// KvMapBuilder: finds the owner of every block and page, for a KvMap. The tree knows all but the
// sequences; its caller adds these. O(nodes + blocks + pages) in all, and a byte for each block and
// page. One thread.
#pragma once

#include <vector>

#include "engine/schedule/kv/kv_nodes.h"
#include "engine/values/kv_map.h"

namespace quire {

class KvMapBuilder {
 public:
  // Reads the state of the pool and the tree, which must not change until Build. Both outlive this.
  KvMapBuilder(const BlockPool& pool, const KvNodes& nodes);

  // A block of a row that the tree does not share.
  void AddRunning(BlockId block) { Own(block, BlockOwner::kRunning); }
  // The blocks of the nodes from the root to `node` are a sequence's. Add those of running
  // sequences first.
  void AddChain(NodeId node, BlockOwner owner);

  KvMap Build() const;

 private:
  void Own(BlockId block, BlockOwner owner);
  void ReadNode(NodeId node);

  const BlockPool& pool_;
  const KvNodes& nodes_;
  std::vector<BlockOwner> blocks_;  // by block id
  std::vector<PageOwner> pages_;    // by page id
};

}  // namespace quire

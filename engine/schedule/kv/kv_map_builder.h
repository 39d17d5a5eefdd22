// KvMapBuilder: finds the owner of every block and page, for a KvMap. The tree is read in parts, so
// that no step waits long; it may change between two parts, and a block or page that moves then may
// show an owner of a moment ago. Without changes the map is exact. A block counts once in any case.
// Takes a byte for each block and page. One thread.
#pragma once

#include <vector>

#include "engine/schedule/kv/kv_nodes.h"
#include "engine/values/kv_map.h"

namespace quire {

class KvMapBuilder {
 public:
  // Both outlive this.
  KvMapBuilder(const BlockPool& pool, const KvNodes& nodes);

  // Reads the next `count` nodes; true once all are read. About 12 ns a node that is not in the
  // processor's caches.
  bool ReadNodes(int32_t count);

  // --- When all nodes are read, the sequences; then Build, without a change in between.
  // A block of a row that the tree does not share.
  void AddRunning(BlockId block) { Own(block, BlockOwner::kRunning); }
  // The blocks of the nodes from the root to `node` are a sequence's. Add those of running
  // sequences first.
  void AddChain(NodeId node, BlockOwner owner);
  KvMap Build();

 private:
  void Own(BlockId block, BlockOwner owner);
  void ReadNode(NodeId node);

  const BlockPool& pool_;
  const KvNodes& nodes_;
  NodeId next_ = 0;                 // to be read
  std::vector<BlockOwner> blocks_;  // by block id
  std::vector<PageOwner> pages_;    // by page id
};

}  // namespace quire

// NodeRecord: all that is known of a node of the prefix tree, side by side, because walking a chain
// costs a cache line for each node. Each part of the tree writes its own fields alone.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/schedule/kv/block_pool.h"
#include "engine/schedule/tenants/account_id.h"
#include "engine/values/copy_plan.h"

namespace quire {

// Valid until the node is forgotten: store it only while you hold or keep the node.
using NodeId = int32_t;

inline constexpr NodeId kNoNode = -1;

// Tells the roots apart: the tenant.
using RootKey = uint64_t;

// Where a node's KV is.
struct NodeKv {
  BlockId block = kNullBlock;  // kNullBlock: not on the device
  PageId page = kNoPage;       // kNoPage: not on the host
  bool loading = false;        // the block is being filled from the page: do not read it
  bool storing = false;        // a store or an import is filling the page: do not read it
  bool on_device() const { return block != kNullBlock && !loading; }
  bool on_host() const { return page != kNoPage && !storing; }
  bool copying() const { return loading || storing; }
  bool anywhere() const { return block != kNullBlock || page != kNoPage; }
};

struct NodeRecord {
  // NodeTree's.
  NodeId parent = kNoNode;
  int32_t depth = -1;              // -1: not in use
  int32_t filled = 0;              // tokens of a tail; 0: not a tail
  AccountId account = kNoAccount;  // of the tenant, as long as its root exists
  RootKey key = 0;                 // of a root
  // NodeKeepers'.
  int32_t keeps = 0;  // keepers, and children that are kept
  // NodePages', and the page in `kv`.
  int32_t paged_children = 0;  // children with a page that is not doomed
  bool doomed = false;         // the page is free as soon as a copy has ended
  // KvNodes'.
  int32_t holds = 0;  // holders, and children that are held
  NodeKv kv;
  // EvictionOrder's.
  uint64_t filed = 0;  // the clock when it was filed last
};

static_assert(sizeof(NodeRecord) == 64, "a cache line");

using NodeRecords = std::vector<NodeRecord>;  // by node

}  // namespace quire

// HostFilling: a chain of host pages that get their KV from outside the scheduler, from an import
// or from a file. Begin takes the pages; the caller fills them; End tells whether they are good.
// The nodes are held from Begin to Release, and no sequence reads a page before End. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/schedule/kv/prefix_tree.h"

namespace quire {

class HostFilling {
 public:
  // `tree` outlives this.
  explicit HostFilling(PrefixTree& tree) : tree_(&tree) {}

  // A page for each block of `tokens`; the last block may be partly filled. kNoPage: its KV is on
  // the host already, or there is no room for it and all behind it. When the tenant can get no
  // page, `make_room` is called with the number of pages that are still needed.
  std::vector<PageId> Begin(TenantId tenant, std::span<const int32_t> tokens, int32_t block_size,
                            const std::function<void(int32_t pages)>& make_room);
  // The pages are filled, or (not ok) free again. Returns the deepest node of the chain, kNoNode if
  // it has none; keep it before Release.
  NodeId End(bool ok);
  void Release();

 private:
  struct Link {
    NodeId node = kNoNode;
    bool filled = false;  // its page is being filled
  };

  PrefixTree* tree_;
  std::vector<Link> chain_;  // held, the root first
};

}  // namespace quire

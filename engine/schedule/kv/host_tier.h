// HostTier: the pages of host memory that nodes of the prefix tree have, and the copies to and from
// them. A store copies a node's block to a page, a load copies its page to a block, an import fills
// a page from outside. Each has a Begin and an End; the caller holds the node from Begin to End,
// and reads neither side's destination before End. One thread. Nothing here allocates, new nodes
// of an import aside.
//
// A node with a page has ancestors with pages: a store needs the parent's page, and losing a page
// loses those of all nodes below.
//
// A tenant may have a bound (TenantLimits::max_host_kv_tokens). At it, its nodes get only pages
// that its own spare nodes lose, the longest unused first.
#pragma once

#include <cstdint>
#include <span>

#include "engine/schedule/kv/node_record.h"

namespace quire {

class KvNodes;

// A node that comes held for the caller.
struct InsertedNode {
  NodeId node = kNoNode;
  bool adopted = false;  // the tree took over the block, or wants its page filled; false: an equal
                         // node has KV of its own, and the block remains the caller's
};

class HostTier {
 public:
  // Both outlive this.
  HostTier(BlockPool& pool, KvNodes& nodes) : pool_(pool), nodes_(nodes) {}

  int32_t num_pages() const;
  // Pages that are ready and free, or belong to nodes that are neither held nor kept: usable at
  // once.
  int32_t num_free_pages() const;
  // Of them, those that nodes of the tenant of `node` (a root or another) can get.
  int32_t num_free_pages(NodeId node) const;
  // The pages that this tenant's bound leaves it, its spare ones included, however many there are;
  // negative: it holds and keeps more, since its bound was lowered.
  int32_t RoomInShare(NodeId node) const;
  // The bounds have changed: tenants above theirs lose spare pages. O(pages they lose + tenants).
  void GiveBackExcess();
  int32_t num_used_pages() const;
  // Pages become ready from the first to the last. All are, unless Withhold was called at the
  // start: then as many as Provide says.
  void Withhold();
  void Provide(int32_t count);  // ignores fewer than before, and pages that do not exist
  int32_t num_ready_pages() const;
  bool all_ready() const { return num_ready_pages() == num_pages(); }

  // Takes a page for a node's block. Requires on_device() and no page. kNoPage, and nothing done,
  // if num_free_pages(node) is 0, or the parent (unless it is a root) has none.
  PageId BeginStore(NodeId node);
  // Not ok: the node's page and the pages of all nodes below it become free. A page that a copy in
  // flight still uses becomes free with the End of that copy, whether ok or not.
  void EndStore(NodeId node, bool ok);
  // The tree takes over `block`, to be filled. Requires on_host() and no block.
  void BeginLoad(NodeId node, BlockId block);
  // Not ok: the block becomes free. The page stays unless `page_bad`: then it and the pages of all
  // nodes below become free, as EndStore frees them.
  void EndLoad(NodeId node, bool ok, bool page_bad);
  // Begins an import: a page for the child of `parent` (held by the caller) that spells `tokens`,
  // made if there is none; with `tail` a new tail of that many tokens. The node comes held.
  // Adopted: fill its page, then call EndStore; else it has a page already. kNoNode, and nothing
  // done, if num_free_pages(parent) is 0, the parent (unless it is a root) has none, or an equal
  // node cannot be held because no block is available.
  InsertedNode InsertOnHost(NodeId parent, std::span<const int32_t> tokens, bool tail);

  // Keeps the bytes of a page in place for a reader outside the scheduler, without holding the
  // node: it may be used, evicted and forgotten meanwhile. Requires on_host(). EndRead takes the
  // node and the page; call both from the deepest node of a chain to the root.
  PageId BeginRead(NodeId node);
  void EndRead(NodeId node, PageId page);

  // Frees the block of a node that is not held and is on the host; false if it is not so.
  bool DropBlock(NodeId node);
  // Frees the page of a node that is not held or read and has no pages below. A node that has no
  // block either is forgotten with all nodes below it, whose KV cannot be used without it. False if
  // it is not so.
  bool DropPage(NodeId node);

 private:
  bool CanTakePage(NodeId parent) const;
  void LosePages(NodeId top);

  BlockPool& pool_;
  KvNodes& nodes_;
};

}  // namespace quire

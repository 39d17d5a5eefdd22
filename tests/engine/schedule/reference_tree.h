// ReferenceTree: a second prefix tree, slow and obvious: a list of nodes with their tokens, without
// counts or sorted lists; holders, keepers and descendants are found by looking at all nodes. Run
// in lockstep with the real tree, it must agree on every answer and every evicted node.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <vector>

#include "engine/schedule/kv/prefix_tree.h"

namespace quire {

class ReferenceTree {
 public:
  struct Node {
    Node* parent = nullptr;       // null: a root
    std::vector<int32_t> tokens;  // its own
    bool tail = false;
    NodeId id = kNoNode;  // in the real tree
    NodeKv kv;
    bool doomed = false;  // has a page only until its copy ends
    int32_t holders = 0;
    std::set<uint64_t> keepers;
    int64_t used = 0;                                 // when its last hold or keep ended
    bool was_on_device = false, was_on_host = false;  // at the last TreeLockstep::Compare

    bool has_block() const { return kv.block != kNullBlock; }
    bool has_page() const { return kv.page != kNoPage && !doomed; }
    bool has_kv() const { return has_block() || kv.page != kNoPage; }
    bool copying() const { return kv.loading || kv.storing; }
  };

  ReferenceTree(int32_t block_size, int32_t num_pages)
      : block_size_(block_size), num_pages_(num_pages) {}

  Node* Find(TenantId tenant, const std::vector<int32_t>& tokens);
  Node* Child(Node* parent, const std::vector<int32_t>& tokens);  // null if there is none
  std::vector<Node*> All();                                       // except the roots
  std::vector<Node*> Chain(Node* node);                           // the deepest first, no root
  std::vector<Node*> Children(Node* node);
  bool Held(Node* node);
  bool Kept(Node* node);
  int32_t Depth(Node* node);
  int32_t NumTokens(Node* node);
  int32_t HoldCost(Node* node);
  int32_t NumBlocks();     // of the tree
  int32_t NumEvictable();  // of them
  int32_t NumLossless();
  int32_t NumFreePages();
  // Of one tenant: the pages its nodes have, and those that it can get; its longest unused unsaved
  // node.
  int32_t NumPages(TenantId tenant);
  int32_t NumFreePages(TenantId tenant);
  bool AtBound(TenantId tenant);
  Node* OldestUnsaved(TenantId tenant);
  bool PageToHave(Node* parent);
  // From now on the tenant may have this many pages. It loses the spare ones that are too many.
  void SetBound(TenantId tenant, int32_t pages);
  Node* Victim();         // its block is evicted first; null if there is none
  Node* OldestUnsaved();  // null if there is none
  Node* SparePage();      // its page is reused first; null if there is none
  Node* SparePage(TenantId tenant);

  void Hold(Node* node) { ++node->holders; }
  void Release(Node* node);
  void Keep(Node* node, uint64_t keeper);
  void Unkeep(Node* node, uint64_t keeper);
  Node* Add(Node* parent, const std::vector<int32_t>& tokens, bool tail);
  // The evicted node loses its block.
  void Evict();
  // Gives the node `page`, which is free once the oldest spare node has lost its own, if none was;
  // of a tenant at its bound, the oldest of the tenant's own.
  void GivePage(Node* node, PageId page);
  void EndCopy(Node* node);
  void LosePage(Node* node);
  void LosePages(Node* top);
  void TakeTail(Node* tail);
  void ForgetDevice();
  void Flush(bool sessions);
  TenantId TenantOf(Node* node);

 private:
  std::vector<Node*> Below(Node* top);  // children before parents, itself last
  void Forget(Node* node);
  void Use(Node* node) { node->used = ++clock_; }

  const int32_t block_size_;
  const int32_t num_pages_;
  std::list<Node> nodes_;
  std::map<TenantId, Node> roots_;
  std::map<TenantId, int32_t> bounds_;  // of pages; of tenants that have one
  int64_t clock_ = 0;
};

}  // namespace quire

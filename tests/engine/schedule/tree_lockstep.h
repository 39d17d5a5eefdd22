// TreeLockstep: a prefix tree with its pool, and the reference beside it. Every method calls both
// in the same way and expects the same answer. If the call is not possible now (no block is
// available), the method does nothing and returns false or null. Call Compare after each: it
// compares all visible state.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "engine/schedule/tenants/tenant_accounts.h"
#include "tests/engine/schedule/event_replay.h"
#include "tests/engine/schedule/reference_tree.h"

namespace quire {

class TreeLockstep final : public NodeKeeper {
 public:
  using Node = ReferenceTree::Node;
  using Tokens = std::vector<int32_t>;

  struct Shape {
    int32_t block_size = 1;
    int32_t num_blocks = 0;  // the null block not counted
    int32_t num_pages = 0;
    uint64_t hash_seed = 0;  // 0: all hashes are equal
  };
  struct Copy {
    Node* node = nullptr;
    bool load = false;
    bool import = false;
  };
  // How often the rare cases happened.
  struct Tally {
    int64_t found = 0, evicted = 0, kept_lost = 0, moved_keepers = 0, not_adopted = 0, swapped = 0;
    int64_t husks_filled = 0, pages_reclaimed = 0, doomed = 0, devices_lost = 0, tails_taken = 0;
    int64_t tiers_lost = 0, events = 0, flushed = 0;
    // Pages refused or reused at a tenant's bound while other pages were to be had, and lost when a
    // bound sank.
    int64_t bound_refused = 0, bound_reused = 0, bound_lost = 0;
  };

  explicit TreeLockstep(const Shape& shape);

  // --- Holders. An inserted node that is not null comes held; one from Find does not.
  Node* Find(TenantId tenant, const Tokens& tokens);
  bool Hold(Node* node);
  void Release(Node* node);
  void ReleaseAll();
  void Keep(Node* node, uint64_t keeper);
  void Unkeep(uint64_t keeper);  // ends its keep, if it has one

  // --- Growth.
  Node* Insert(Node* parent, const Tokens& tokens);
  Node* InsertTail(Node* parent, const Tokens& tokens);
  bool TakeTail(Node* tail);

  // --- Tiers. A copy holds its node.
  bool BeginStore(Node* node);
  bool BeginLoad(Node* node);
  // Null also when the node has a page already; it comes held even then.
  Node* Import(Node* parent, const Tokens& tokens, bool tail);
  void EndCopy(Node* node, bool ok, bool page_bad = false);
  bool DropBlock(Node* node);
  bool DropPage(Node* node);

  // From now on the tenant may have this many pages.
  void SetBound(TenantId tenant, int32_t pages);

  // --- The pool. Blocks that the tree does not own are private.
  BlockId Take();  // kNullBlock: none is available
  void TakePrivate();
  void ReleasePrivate(size_t i);
  void ForgetDevice();  // fails the copies of the device

  // --- Events. Compare takes those of the tenants that are watched.
  void Watch(TenantId tenant);  // begins or ends
  void ContinueWalk(int32_t nodes);
  void Flush(bool sessions);  // of all tenants

  // Ends all copies, holds and keeps; then all blocks and pages must be available, and are taken.
  void Quiesce();
  void Compare();

  BlockPool& pool() { return pool_; }
  PrefixTree& tree() { return tree_; }
  ReferenceTree& reference() { return reference_; }
  const std::vector<Node*>& holders() const { return holders_; }  // one entry for each hold
  const std::vector<Copy>& copies() const { return copies_; }
  size_t num_private() const { return private_.size(); }
  const Tally& tally() const { return tally_; }

  void OnLost(uint64_t keeper, NodeId parent) override;
  void OnTierLost(NodeId node) override;

 private:
  void CountRefusal(Node* parent);
  void GivePage(Node* node);
  void CompareNode(Node* node);
  void CompareNumbers();
  void CompareTenants();
  void CompareEvents();

  const Shape shape_;
  TenantAccounts accounts_;
  BlockPool pool_;
  PrefixTree tree_;
  ReferenceTree reference_;
  std::vector<Node*> holders_;
  std::vector<Copy> copies_;
  std::vector<BlockId> private_;
  std::map<uint64_t, NodeId> kept_;  // the last node that each keeper was told
  std::set<NodeId> tier_lost_;       // reported since the last Compare
  int64_t num_kept_lost_ = 0;
  std::map<TenantId, EventReplay> replays_;  // of the tenants that are watched
  std::map<TenantId, TenantLimits> limits_;
  std::set<TenantId> complete_;  // of them, those whose walk has ended
  Tally tally_;
};

}  // namespace quire

// Lists that are appended to and emptied from the head.
#include "engine/schedule/kv/eviction_order.h"

#include <algorithm>

#include "engine/schedule/kv/node_tree.h"
#include "kernels/check.h"

namespace quire {

void EvictionOrder::Grow(int32_t num_nodes) {
  evictable_.Grow(kNumLists, num_nodes);
  spare_pages_.Grow(1, num_nodes);
  own_.Grow(own_.num_lists(), num_nodes);
}

void EvictionOrder::GrowAccounts(int32_t count) {
  if (count <= num_accounts()) return;
  own_.Grow(2 * std::max(count, 2 * num_accounts()), own_.num_ids());
}

void EvictionOrder::File(NodeId node, int32_t list, bool spare_page) {
  nodes_[node].filed = ++clock_;
  if (list != kNoList) evictable_.PushBack(list, node);
  if (list == kUnsaved) own_.PushBack(UnsavedOf(nodes_[node].account), node);
  if (!spare_page) return;
  spare_pages_.PushBack(0, node);
  own_.PushBack(SpareOf(nodes_[node].account), node);
}

void EvictionOrder::Unfile(NodeId node) {
  UnfileBlock(node);
  UnfilePage(node);
}

void EvictionOrder::UnfileBlock(NodeId node) {
  if (!evictable_.Contains(node)) return;
  if (evictable_.ListOf(node) == kUnsaved) own_.Erase(node);
  evictable_.Erase(node);
}

void EvictionOrder::UnfilePage(NodeId node) {
  if (!spare_pages_.Contains(node)) return;
  spare_pages_.Erase(node);
  own_.Erase(node);
}

NodeId EvictionOrder::TakeVictim() {
  const NodeId unkept = evictable_.Front(kUnkept);
  const NodeId saved = evictable_.Front(kSaved);
  NodeId victim = unkept;
  if (unkept == kNoNode || (saved != kNoNode && nodes_[saved].filed < nodes_[unkept].filed))
    victim = saved;
  if (victim == kNoNode) {
    victim = evictable_.Front(kUnsaved);
    if (victim == kNoNode) return kNoNode;
    ++num_kept_lost_;
  }
  ++num_evicted_;
  UnfileBlock(victim);
  return victim;
}

void EvictionOrder::CheckInvariants(const NodeTree& tree) const {
  for (int32_t list = 0; list < kNumLists; ++list) CheckList(tree, evictable_, list);
  CheckList(tree, spare_pages_, 0);
  for (int32_t list = 0; list < own_.num_lists(); ++list) CheckList(tree, own_, list);
  CheckOwn();
}

// Each tenant's lists have its nodes of the lists of all, and no others.
void EvictionOrder::CheckOwn() const {
  for (NodeId id = 0; id < own_.num_ids(); ++id) {
    const AccountId account = nodes_[id].account;
    const int32_t list = HasSparePage(id)         ? SpareOf(account)
                         : ListOf(id) == kUnsaved ? UnsavedOf(account)
                                                  : IdLists::kNone;
    CHECK_EQ(own_.ListOf(id), list);
  }
}

// Nodes stand in the order of their filing, and in a list children stand before their parent.
void EvictionOrder::CheckList(const NodeTree& tree, const IdLists& lists, int32_t list) const {
  uint64_t filed = 0;
  int32_t count = 0;
  for (NodeId id = lists.Front(list); id != kNoNode; id = lists.Next(id)) {
    ++count;
    CHECK_LT(filed, nodes_[id].filed);
    filed = nodes_[id].filed;
    for (NodeId child = tree.FirstChild(id); child != kNoNode; child = tree.NextSibling(child)) {
      CHECK(lists.ListOf(child) != list || nodes_[child].filed < filed);
    }
  }
  CHECK_EQ(count, lists.size(list));
}

}  // namespace quire

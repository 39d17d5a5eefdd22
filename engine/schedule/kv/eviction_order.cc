// Lists that are appended to and emptied from the head.
#include "engine/schedule/kv/eviction_order.h"

#include "engine/schedule/kv/node_tree.h"
#include "kernels/check.h"

namespace quire {

void EvictionOrder::Grow(int32_t num_nodes) {
  evictable_.Grow(kNumLists, num_nodes);
  spare_pages_.Grow(1, num_nodes);
}

void EvictionOrder::File(NodeId node, int32_t list, bool spare_page) {
  nodes_[node].filed = ++clock_;
  if (list != kNoList) evictable_.PushBack(list, node);
  if (spare_page) spare_pages_.PushBack(0, node);
}

void EvictionOrder::Unfile(NodeId node) {
  UnfileBlock(node);
  UnfilePage(node);
}

void EvictionOrder::UnfileBlock(NodeId node) {
  if (evictable_.Contains(node)) evictable_.Erase(node);
}

void EvictionOrder::UnfilePage(NodeId node) {
  if (spare_pages_.Contains(node)) spare_pages_.Erase(node);
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
  evictable_.Erase(victim);
  return victim;
}

void EvictionOrder::CheckInvariants(const NodeTree& tree) const {
  for (int32_t list = 0; list < kNumLists; ++list) CheckList(tree, evictable_, list);
  CheckList(tree, spare_pages_, 0);
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

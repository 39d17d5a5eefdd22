// A walk down the chain, one node for each block.
#include "engine/schedule/sessions/host_filling.h"

#include <algorithm>

namespace quire {

std::vector<PageId> HostFilling::Begin(TenantId tenant, std::span<const int32_t> tokens,
                                       int32_t block_size,
                                       const std::function<void(int32_t pages)>& make_room) {
  const auto size = static_cast<int32_t>(tokens.size());
  std::vector<PageId> pages((size + block_size - 1) / block_size, kNoPage);
  NodeId node = tree_->Find(tenant, {});
  tree_->Hold(node);
  chain_.push_back({node, false});
  for (int32_t begin = 0; begin < size; begin += block_size) {
    const int32_t count = std::min(block_size, size - begin);
    if (tree_->host().num_free_pages(node) == 0) make_room((size - begin - 1) / block_size + 1);
    const PrefixTree::Inserted inserted =
        tree_->host().InsertOnHost(node, tokens.subspan(begin, count), count < block_size);
    if (inserted.node == kNoNode) break;
    node = inserted.node;
    chain_.push_back({node, inserted.adopted});
    if (inserted.adopted) pages[begin / block_size] = tree_->Kv(node).page;
  }
  return pages;
}

NodeId HostFilling::End(bool ok) {
  for (const Link& link : chain_) {
    if (link.filled) tree_->host().EndStore(link.node, ok);
  }
  const NodeId deepest = chain_.back().node;
  return tree_->Depth(deepest) > 0 ? deepest : kNoNode;
}

void HostFilling::Release() {
  for (const Link& link : chain_) tree_->Release(link.node);
  chain_.clear();
}

}  // namespace quire

// One pass over the nodes in parts, then one over the chains of sequences, each node once.
#include "engine/schedule/kv/kv_map_builder.h"

#include <algorithm>
#include <array>
#include <span>

namespace quire {
namespace {

// Counts by owner, and cells of `per_cell` owners each, which show the owner of most; of two equal
// ones the later, because it says more.
template <typename Owner, size_t kOwners>
void Summarize(std::span<const Owner> owners, std::array<int32_t, kOwners>& counts,
               int32_t& per_cell, std::vector<Owner>& cells) {
  const size_t size = owners.size();
  const size_t step = std::max<size_t>(1, (size + KvMap::kMaxCells - 1) / KvMap::kMaxCells);
  per_cell = static_cast<int32_t>(step);
  cells.reserve((size + step - 1) / step);
  for (size_t begin = 0; begin < size; begin += step) {
    std::array<int32_t, kOwners> in_cell{};
    for (size_t i = begin; i < std::min(size, begin + step); ++i) {
      ++in_cell[static_cast<size_t>(owners[i])];
    }
    size_t most = 0;
    for (size_t owner = 0; owner < kOwners; ++owner) {
      counts[owner] += in_cell[owner];
      if (in_cell[owner] >= in_cell[most]) most = owner;
    }
    cells.push_back(static_cast<Owner>(most));
  }
}

}  // namespace

KvMapBuilder::KvMapBuilder(const BlockPool& pool, const KvNodes& nodes)
    : pool_(pool),
      nodes_(nodes),
      blocks_(static_cast<size_t>(pool.total()) + 1, BlockOwner::kFree),
      pages_(static_cast<size_t>(nodes.pages().num_pages()), PageOwner::kUnused) {}

bool KvMapBuilder::ReadNodes(int32_t count) {
  const NodeId num_nodes = nodes_.tree().num_nodes();
  const NodeId end = std::min(num_nodes, next_ + count);
  for (; next_ < end; ++next_) ReadNode(next_);
  return next_ == num_nodes;
}

void KvMapBuilder::ReadNode(NodeId node) {
  const NodeKv& kv = nodes_.Kv(node);
  if (!kv.anywhere()) return;
  const bool kept = nodes_.keepers().Kept(node);
  if (kv.block != kNullBlock) {
    blocks_[kv.block] = kv.copying() ? BlockOwner::kCopying
                        : kept       ? BlockOwner::kSession
                                     : BlockOwner::kCached;
  }
  if (kv.page == kNoPage) return;
  pages_[kv.page] = kv.copying()     ? PageOwner::kCopying
                    : kv.on_device() ? PageOwner::kBacked
                    : kept           ? PageOwner::kSession
                                     : PageOwner::kCached;
}

void KvMapBuilder::Own(BlockId block, BlockOwner owner) {
  if (block != kNullBlock) blocks_[block] = std::max(blocks_[block], owner);
}

void KvMapBuilder::AddChain(NodeId node, BlockOwner owner) {
  for (; node != kNoNode && !nodes_.tree().IsRoot(node); node = nodes_.tree().Parent(node)) {
    const BlockId block = nodes_.Kv(node).block;
    // Another sequence has this chain, from here to the root.
    const bool owned = block != kNullBlock && blocks_[block] >= owner;
    if (owned && blocks_[block] != BlockOwner::kCopying) return;
    Own(block, owner);
  }
}

KvMap KvMapBuilder::Build() {
  for (BlockId block = 1; block <= pool_.total(); ++block) {
    const BlockState state = pool_.state(block);
    BlockOwner& owner = blocks_[block];
    if (state == BlockState::kFree) owner = BlockOwner::kFree;
    if (state == BlockState::kFree || owner != BlockOwner::kFree) continue;
    // Neither node nor sequence named it: it was given to a row, or cached, between two parts.
    owner = state == BlockState::kTaken ? BlockOwner::kRunning : BlockOwner::kCached;
  }
  const NodePages& pages = nodes_.pages();
  for (PageId page = 0; page < pages.num_pages(); ++page) {
    if (pages.Reading(page)) pages_[page] = PageOwner::kCopying;
    if (page >= pages.num_ready()) pages_[page] = PageOwner::kNotReady;
  }
  KvMap map;
  const std::span<const BlockOwner> blocks(blocks_);
  Summarize<BlockOwner, kNumBlockOwners>(blocks.subspan(1), map.blocks, map.blocks_per_cell,
                                         map.block_cells);
  Summarize<PageOwner, kNumPageOwners>(pages_, map.pages, map.pages_per_cell, map.page_cells);
  map.reserved_blocks = pool_.reserved();
  return map;
}

}  // namespace quire

// PrefixTree: lookup, eviction order, reports to the keeper, and copies that end in every order and
// with every result.
// Covers engine/schedule/kv/eviction_order.cc
// Covers engine/schedule/kv/host_tier.cc
// Covers engine/schedule/kv/kv_nodes.cc
// Covers engine/schedule/kv/kv_nodes_check.cc
// Covers engine/schedule/kv/node_keepers.cc
// Covers engine/schedule/kv/node_pages.cc
// Covers engine/schedule/kv/node_tree.cc
#include "engine/schedule/kv/prefix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "tests/engine/schedule/tree_lockstep.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::Pair;
using Tokens = std::vector<int32_t>;

constexpr TenantId kTenant = 1;
constexpr int32_t kBlockSize = 2;

class PrefixTreeTest : public testing::Test, public NodeKeeper {
 protected:
  PrefixTreeTest() { tree_.SetKeeper(this); }
  ~PrefixTreeTest() override { tree_.CheckInvariants(); }

  void OnLost(uint64_t keeper, NodeId parent) override { lost_.emplace_back(keeper, parent); }
  void OnTierLost(NodeId node) override { tier_lost_.push_back(node); }

  // Inserts a chain as a sequence does, and leaves its deepest node held. Tokens in whole blocks.
  NodeId InsertChain(const Tokens& tokens, TenantId tenant = kTenant) {
    NodeId node = tree_.Find(tenant, {});
    tree_.Hold(node);
    for (size_t at = 0; at < tokens.size(); at += kBlockSize) {
      const BlockId block = pool_.Take();
      const auto inserted = tree_.Insert(node, std::span(tokens).subspan(at, kBlockSize), block);
      if (!inserted.adopted) pool_.Release(block);
      tree_.Release(node);
      node = inserted.node;
    }
    return node;
  }
  NodeId CacheChain(const Tokens& tokens, TenantId tenant = kTenant) {
    const NodeId node = InsertChain(tokens, tenant);
    tree_.Release(node);
    return node;
  }
  // Stores the nodes of a held chain, beginning at the root.
  void StoreChain(NodeId deepest) {
    std::vector<NodeId> chain;
    tree_.Chain(deepest, chain);
    for (const NodeId node : chain) {
      if (tree_.Kv(node).page != kNoPage) continue;
      ASSERT_NE(tree_.host().BeginStore(node), kNoPage);
      tree_.host().EndStore(node, true);
    }
  }
  int32_t FoundTokens(const Tokens& tokens, TenantId tenant = kTenant) {
    return tree_.NumTokens(tree_.Find(tenant, tokens));
  }
  // Takes all available blocks. Returns those that were cached, in the order of their eviction.
  std::vector<BlockId> EvictAll() {
    std::vector<BlockId> evicted;
    while (pool_.available() > 0) {
      const bool cached = pool_.num_free() == 0;
      const BlockId block = pool_.Take();
      if (cached) evicted.push_back(block);
    }
    return evicted;
  }

  BlockPool pool_{13};
  PrefixTree tree_{pool_, kBlockSize, 8};
  std::vector<std::pair<uint64_t, NodeId>> lost_;
  std::vector<NodeId> tier_lost_;
};

TEST_F(PrefixTreeTest, FindsTheLongestPrefixInWholeBlocks) {
  CacheChain({1, 2, 3, 4, 5, 6});
  CacheChain({1, 2, 3, 9});
  EXPECT_EQ(FoundTokens({1, 2, 3, 4, 5, 6}), 6);
  EXPECT_EQ(FoundTokens({1, 2, 3, 4, 5, 6, 7, 8}), 6);
  EXPECT_EQ(FoundTokens({1, 2, 3, 4, 5}), 4);
  EXPECT_EQ(FoundTokens({1, 2, 3, 9, 5, 6}), 4);
  EXPECT_EQ(FoundTokens({1, 2, 4, 3}), 2);
  EXPECT_EQ(FoundTokens({2, 1}), 0);
  EXPECT_EQ(FoundTokens({3, 4}), 0);  // found only behind its own prefix
  EXPECT_EQ(FoundTokens({1}), 0);
  EXPECT_EQ(pool_.num_cached(), 4);  // the common prefix is stored once
}

TEST_F(PrefixTreeTest, TenantsShareNothing) {
  const NodeId one = CacheChain({1, 2, 3, 4}, 1);
  EXPECT_EQ(FoundTokens({1, 2, 3, 4}, 2), 0);
  const NodeId two = CacheChain({1, 2, 3, 4}, 2);
  EXPECT_NE(one, two);
  EXPECT_NE(tree_.Kv(one).block, tree_.Kv(two).block);
  EXPECT_EQ(pool_.num_cached(), 4);
}

TEST_F(PrefixTreeTest, ChainBeginsBelowTheRoot) {
  const NodeId deepest = CacheChain({1, 2, 3, 4, 5, 6});
  std::vector<NodeId> chain;
  tree_.Chain(deepest, chain);
  ASSERT_EQ(chain.size(), 3u);
  EXPECT_EQ(chain[2], deepest);
  EXPECT_EQ(chain[1], tree_.Parent(deepest));
  EXPECT_EQ(tree_.Depth(chain[0]), 1);
  tree_.Chain(tree_.Parent(chain[0]), chain);
  EXPECT_TRUE(chain.empty());
}

// --- Eviction order.

TEST_F(PrefixTreeTest, EvictsLeastRecentlyUsedLeavesFirst) {
  const NodeId a = CacheChain({1, 2, 3, 4});
  const NodeId b = CacheChain({7, 8, 3, 4});
  const BlockId a1 = tree_.Kv(tree_.Parent(a)).block, a2 = tree_.Kv(a).block;
  const BlockId b1 = tree_.Kv(tree_.Parent(b)).block, b2 = tree_.Kv(b).block;
  tree_.Hold(tree_.Parent(a));  // used again, its child not
  tree_.Release(tree_.Parent(a));
  EXPECT_THAT(EvictAll(), ElementsAre(a2, b2, b1, a1));
  EXPECT_EQ(tree_.evictions().num_evicted(), 4);
  EXPECT_EQ(tree_.evictions().num_kept_lost(), 0);
}

TEST_F(PrefixTreeTest, NeverEvictsHeldNodes) {
  const NodeId held = InsertChain({1, 2, 3, 4});
  const NodeId leaf = InsertChain({1, 2, 3, 4, 5, 6});
  const BlockId block = tree_.Kv(leaf).block;
  tree_.Release(leaf);
  EXPECT_THAT(EvictAll(), ElementsAre(block));
  EXPECT_EQ(FoundTokens({1, 2, 3, 4, 5, 6}), 4);
  tree_.Release(held);
}

TEST_F(PrefixTreeTest, EvictsKeptNodesLastAndReportsToTheirKeepers) {
  const NodeId kept = CacheChain({1, 2, 3, 4});
  const NodeId above = tree_.Parent(kept);
  tree_.Keep(kept, 5);
  tree_.Keep(kept, 6);
  tree_.Keep(above, 7);
  const NodeId young = CacheChain({1, 2, 9, 9});
  const BlockId k1 = tree_.Kv(above).block, k2 = tree_.Kv(kept).block;
  const BlockId y = tree_.Kv(young).block;
  EXPECT_EQ(tree_.evictions().num_lossless(), 1);
  EXPECT_EQ(tree_.evictions().OldestUnsaved(), kept);
  EXPECT_THAT(EvictAll(), ElementsAre(y, k2, k1));
  EXPECT_EQ(tree_.evictions().num_kept_lost(), 2);
  EXPECT_THAT(lost_, testing::UnorderedElementsAre(Pair(5, above), Pair(6, above), Pair(5, kNoNode),
                                                   Pair(6, kNoNode), Pair(7, kNoNode)));
}

TEST_F(PrefixTreeTest, EvictsKeptNodesWithAPageLikeUnkeptOnes) {
  const NodeId kept = InsertChain({1, 2, 3, 4});
  StoreChain(kept);
  tree_.Keep(kept, 5);
  tree_.Release(kept);
  const BlockId k1 = tree_.Kv(tree_.Parent(kept)).block, k2 = tree_.Kv(kept).block;
  const BlockId young = tree_.Kv(CacheChain({9, 9})).block;
  EXPECT_EQ(tree_.evictions().num_lossless(), 3);
  EXPECT_EQ(tree_.evictions().OldestUnsaved(), kNoNode);
  EXPECT_THAT(EvictAll(), ElementsAre(k2, k1, young));
  EXPECT_TRUE(lost_.empty());
  EXPECT_EQ(FoundTokens({1, 2, 3, 4}), 4);
  EXPECT_TRUE(tree_.Kv(kept).on_host());
}

// Keeps a chain whose ancestors were filed long ago: they must not be evicted before the child.
TEST_F(PrefixTreeTest, KeepingAChildRefilesItsAncestors) {
  const NodeId deep = CacheChain({1, 2, 3, 4});
  const NodeId above = tree_.Parent(deep);
  tree_.Keep(above, 1);
  tree_.Keep(deep, 2);
  const BlockId d = tree_.Kv(deep).block, a = tree_.Kv(above).block;
  EXPECT_THAT(EvictAll(), ElementsAre(d, a));
}

TEST_F(PrefixTreeTest, NodesNoLongerKeptCountAsUsedNow) {
  const NodeId kept = CacheChain({1, 2});
  tree_.Keep(kept, 1);
  const BlockId k = tree_.Kv(kept).block;
  const BlockId other = tree_.Kv(CacheChain({3, 4})).block;
  tree_.Unkeep(kept, 1);
  EXPECT_THAT(EvictAll(), ElementsAre(other, k));
  EXPECT_TRUE(lost_.empty());
}

TEST_F(PrefixTreeTest, ReusesPagesOfUnkeptNodes) {
  const NodeId old = InsertChain({1, 2, 3, 4});
  StoreChain(old);
  tree_.Release(old);
  EXPECT_EQ(tree_.host().num_free_pages(), 8);
  const NodeId kept = InsertChain({5, 6, 5, 6, 5, 6, 5, 6, 5, 6, 5, 6, 5, 6});
  StoreChain(kept);  // seven of eight pages
  tree_.Keep(kept, 1);
  tree_.Release(kept);
  EXPECT_EQ(tree_.host().num_free_pages(), 1);
  EXPECT_TRUE(tree_.Kv(tree_.Parent(old)).on_host());  // the leaf's page was reused
  EXPECT_EQ(tree_.Kv(old).page, kNoPage);
  EXPECT_TRUE(tree_.Kv(old).on_device());
}

// --- Growth.

TEST_F(PrefixTreeTest, InsertAdoptsNewBlocksAndReplacesUnheldOnes) {
  const NodeId root = tree_.Find(kTenant, {});
  tree_.Hold(root);
  const Tokens tokens = {1, 2};
  const BlockId first = pool_.Take();
  const auto made = tree_.Insert(root, tokens, first);
  EXPECT_TRUE(made.adopted);
  const BlockId second = pool_.Take();
  const auto equal = tree_.Insert(root, tokens, second);
  EXPECT_FALSE(equal.adopted);  // the first block may be in use by a reader
  EXPECT_EQ(equal.node, made.node);
  EXPECT_EQ(tree_.Kv(made.node).block, first);
  tree_.Release(made.node);
  tree_.Release(made.node);
  const int32_t available = pool_.available();
  EXPECT_TRUE(tree_.Insert(root, tokens, second).adopted);
  EXPECT_EQ(tree_.Kv(made.node).block, second);
  EXPECT_EQ(pool_.state(first), BlockState::kFree);
  EXPECT_EQ(pool_.available(), available);
}

TEST_F(PrefixTreeTest, TakeTailReturnsItsBlockAndMovesItsKeeper) {
  const NodeId parent = InsertChain({1, 2});
  const BlockId block = pool_.Take();
  const NodeId tail = tree_.InsertTail(parent, 1, block);
  EXPECT_EQ(tree_.NumTokens(tail), 3);
  EXPECT_EQ(FoundTokens({1, 2, 3}), 2);  // never found
  StoreChain(tail);
  tree_.Keep(tail, 4);
  tree_.Hold(tail);
  EXPECT_EQ(tree_.TakeTail(tail), kNullBlock);  // held twice
  tree_.Release(tail);
  EXPECT_EQ(tree_.TakeTail(tail), block);
  EXPECT_EQ(pool_.state(block), BlockState::kTaken);
  EXPECT_EQ(tree_.host().num_free_pages(), 7);
  EXPECT_THAT(lost_, ElementsAre(Pair(4, parent)));
  EXPECT_TRUE(tree_.Held(parent));
  tree_.Release(parent);
}

TEST_F(PrefixTreeTest, RootsOfTenantsWithoutKvAreReused) {
  const int32_t first_capacity = pool_.total() + tree_.host().num_pages() + 64;
  for (TenantId tenant = 1; tenant < 10000; ++tenant) {
    EXPECT_LT(tree_.Find(tenant, {}), first_capacity);
  }
  tree_.CheckInvariants();
}

// Held roots are never reused: the tree grows instead.
TEST_F(PrefixTreeTest, GrowsWhenAllRootsAreHeld) {
  std::vector<NodeId> roots;
  for (TenantId tenant = 1; tenant <= 300; ++tenant) {
    roots.push_back(tree_.Find(tenant, {}));
    tree_.Hold(roots.back());
  }
  CacheChain({1, 2, 3, 4}, 300);
  for (TenantId tenant = 1; tenant <= 300; ++tenant) {
    EXPECT_EQ(tree_.Find(tenant, {}), roots[tenant - 1]);
  }
  tree_.CheckInvariants();
  EXPECT_EQ(FoundTokens({1, 2, 3, 4}, 300), 4);
  for (const NodeId root : roots) tree_.Release(root);
}

// --- Copies.

TEST_F(PrefixTreeTest, RefusesToStoreANodeWhoseParentHasNoPage) {
  const NodeId node = InsertChain({1, 2, 3, 4});
  EXPECT_EQ(tree_.host().BeginStore(node), kNoPage);
  EXPECT_NE(tree_.host().BeginStore(tree_.Parent(node)), kNoPage);
  EXPECT_NE(tree_.host().BeginStore(node), kNoPage);  // the parent's store is in flight, too
  tree_.host().EndStore(node, true);
  tree_.host().EndStore(tree_.Parent(node), true);
  tree_.Release(node);
}

TEST_F(PrefixTreeTest, AnImportIsReadableOnceItsPageIsFilled) {
  const NodeId root = tree_.Find(kTenant, {});
  tree_.Hold(root);
  const auto imported = tree_.host().InsertOnHost(root, Tokens{1, 2}, false);
  ASSERT_TRUE(imported.adopted);
  EXPECT_FALSE(tree_.Kv(imported.node).on_host());
  const auto again = tree_.host().InsertOnHost(root, Tokens{1, 2}, false);
  EXPECT_EQ(again.node, imported.node);
  EXPECT_FALSE(again.adopted);
  tree_.host().EndStore(imported.node, true);
  EXPECT_TRUE(tree_.Kv(imported.node).on_host());
  tree_.Keep(imported.node, 1);
  tree_.Release(imported.node);
  tree_.Release(imported.node);
  tree_.Release(root);
  EXPECT_EQ(FoundTokens({1, 2}), 2);
  EXPECT_TRUE(tree_.host().DropPage(imported.node));
  EXPECT_THAT(lost_, ElementsAre(Pair(1, kNoNode)));
}

// A chain of three nodes, each stored or loaded by its own copy. The copies end in every order and
// with every result, the device is lost at every point or never, and the chain is held, kept, or
// held by its copies alone.
class CopyOrder {
 public:
  static constexpr int kLength = 3;
  enum Ending { kOk, kFailed, kBadPage, kNumEndings };

  CopyOrder(bool load, bool held, bool kept)
      : load_(load),
        both_({.block_size = 1, .num_blocks = 2 * kLength, .num_pages = kLength, .hash_seed = 0}) {
    ReferenceTree::Node* node = both_.Find(kTenant, {});
    both_.Hold(node);
    for (int i = 0; i < kLength; ++i) chain_[i] = node = both_.Insert(node, {7});
    if (kept) both_.Keep(node, 0);
    if (load_) {
      for (ReferenceTree::Node* each : chain_) {
        both_.BeginStore(each);
        both_.EndCopy(each, true);
      }
    }
    both_.ReleaseAll();
    if (load_) {
      for (ReferenceTree::Node* each : chain_) both_.DropBlock(each);
    }
    if (held) both_.Hold(node);
  }

  void Run(const std::array<int, kLength>& order, const std::array<Ending, kLength>& endings,
           int device_lost_at) {
    for (ReferenceTree::Node* node : chain_) {
      ASSERT_TRUE(load_ ? both_.BeginLoad(node) : both_.BeginStore(node));
      both_.Compare();
    }
    for (int i = 0; i < kLength; ++i) {
      if (i == device_lost_at) {
        both_.ForgetDevice();
        both_.Compare();
        break;
      }
      const Ending ending = endings[order[i]];
      both_.EndCopy(chain_[order[i]], ending == kOk, ending == kBadPage);
      both_.Compare();
    }
    both_.ReleaseAll();
    both_.Compare();
    both_.Quiesce();
  }

 private:
  const bool load_;
  TreeLockstep both_;
  std::array<ReferenceTree::Node*, kLength> chain_;
};

class CopyOrderTest : public testing::TestWithParam<std::tuple<bool, bool, bool>> {};

TEST_P(CopyOrderTest, AccountsForEveryResultInEveryOrder) {
  const auto [load, held, kept] = GetParam();
  const int num_endings = load ? CopyOrder::kNumEndings : CopyOrder::kBadPage;
  std::array<int, CopyOrder::kLength> order = {0, 1, 2};
  do {
    for (int code = 0; code < num_endings * num_endings * num_endings; ++code) {
      const std::array<CopyOrder::Ending, CopyOrder::kLength> endings = {
          CopyOrder::Ending(code % num_endings),
          CopyOrder::Ending(code / num_endings % num_endings),
          CopyOrder::Ending(code / num_endings / num_endings)};
      for (int lost_at = 0; lost_at <= CopyOrder::kLength; ++lost_at) {
        SCOPED_TRACE(testing::PrintToString(order) + testing::PrintToString(endings) +
                     std::to_string(lost_at));
        CopyOrder(load, held, kept).Run(order, endings, lost_at);
        if (HasFailure()) return;
      }
    }
  } while (std::ranges::next_permutation(order).found);
}

INSTANTIATE_TEST_SUITE_P(All, CopyOrderTest,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()));

// A load finds a bad page while deeper pages are being loaded. The deeper pages stay until their
// copies have ended, and the last Release forgets the whole chain.
TEST_F(PrefixTreeTest, ABadPageFreesThePagesBelowWhenTheirCopiesEnd) {
  const NodeId deep = InsertChain({1, 2, 3, 4});
  const NodeId above = tree_.Parent(deep);
  StoreChain(deep);
  tree_.Keep(deep, 3);
  tree_.Release(deep);
  ASSERT_TRUE(tree_.host().DropBlock(deep) && tree_.host().DropBlock(above));
  tree_.Hold(deep);
  tree_.host().BeginLoad(above, pool_.Take());
  tree_.host().BeginLoad(deep, pool_.Take());
  tree_.host().EndLoad(above, false, true);
  EXPECT_EQ(tree_.host().num_free_pages(), 7);
  EXPECT_EQ(FoundTokens({1, 2, 3, 4}), 0);
  tree_.host().EndLoad(deep, true, false);
  EXPECT_EQ(tree_.host().num_free_pages(), 8);
  EXPECT_TRUE(tree_.Kv(deep).on_device());
  EXPECT_TRUE(lost_.empty());
  tree_.Release(deep);
  EXPECT_THAT(lost_, ElementsAre(Pair(3, above), Pair(3, kNoNode)));
  EXPECT_EQ(pool_.num_free(), pool_.total());
}

TEST_F(PrefixTreeTest, InsertFillsANodeEmptiedByAFault) {
  const NodeId node = InsertChain({1, 2, 3, 4});
  tree_.ForgetDevice();
  EXPECT_EQ(FoundTokens({1, 2, 3, 4}), 0);
  EXPECT_EQ(InsertChain({1, 2, 3, 4}), node);
  EXPECT_EQ(FoundTokens({1, 2, 3, 4}), 4);
  tree_.Release(node);
  tree_.Release(node);
  EXPECT_EQ(pool_.num_cached(), 2);
}

TEST_F(PrefixTreeTest, PagesSurviveALostDevice) {
  const NodeId stored = InsertChain({1, 2, 3, 4});
  StoreChain(tree_.Parent(stored));
  tree_.Keep(stored, 1);
  tree_.Release(stored);
  const NodeId above = tree_.Parent(stored);
  tree_.ForgetDevice();
  EXPECT_EQ(FoundTokens({1, 2, 3, 4}), 2);
  EXPECT_TRUE(tree_.Kv(above).on_host());
  EXPECT_THAT(lost_, ElementsAre(Pair(1, above)));
  EXPECT_EQ(pool_.num_free(), pool_.total());
}

// --- Misuse.

// Three nodes on both tiers, kept at the deepest; then they lose each tier.
TEST_F(PrefixTreeTest, ReportsEveryTierThatAKeptNodeLoses) {
  const NodeId deepest = InsertChain({1, 2, 3, 4, 5, 6});
  const NodeId middle = tree_.Parent(deepest);
  const NodeId first = tree_.Parent(middle);
  StoreChain(deepest);
  tree_.Keep(deepest, 1);
  tree_.Release(deepest);
  EXPECT_THAT(tier_lost_, ElementsAre());
  EvictAll();
  EXPECT_THAT(tier_lost_, ElementsAre(deepest, middle, first));
  tier_lost_.clear();
  tree_.Hold(deepest);
  for (const NodeId node : {first, middle, deepest}) {
    pool_.Release(node == first ? 1 : node == middle ? 2 : 3);
    tree_.host().BeginLoad(node, pool_.Take());
    tree_.host().EndLoad(node, true, false);
  }
  EXPECT_THAT(tier_lost_, ElementsAre());
  tree_.Release(deepest);
  EXPECT_TRUE(tree_.host().DropBlock(deepest));
  EXPECT_TRUE(tree_.host().DropBlock(middle));
  EXPECT_THAT(tier_lost_, ElementsAre(deepest, middle));
  EXPECT_TRUE(
      tree_.host().DropPage(deepest));  // its only KV: forgotten, and reported by OnLost alone
  EXPECT_THAT(lost_, ElementsAre(Pair(1, middle)));
  EXPECT_THAT(tier_lost_, ElementsAre(deepest, middle));
  EXPECT_TRUE(tree_.host().DropPage(middle));
  EXPECT_TRUE(tree_.host().DropPage(first));  // its block remains
  EXPECT_THAT(tier_lost_, ElementsAre(deepest, middle, first));
}

TEST_F(PrefixTreeTest, ReportsTiersLostWithTheDeviceOrABadPage) {
  const NodeId deepest = InsertChain({1, 2, 3, 4});
  const NodeId first = tree_.Parent(deepest);
  StoreChain(deepest);
  tree_.Keep(deepest, 1);
  tree_.ForgetDevice();
  EXPECT_THAT(tier_lost_, ElementsAre(deepest, first));
  tier_lost_.clear();
  tree_.host().BeginLoad(first, pool_.Take());
  tree_.host().EndLoad(first, false, true);
  EXPECT_THAT(tier_lost_, ElementsAre(deepest, first));
  tree_.Release(deepest);
  EXPECT_THAT(lost_, ElementsAre(Pair(1, first), Pair(1, kNoNode)));
}

TEST_F(PrefixTreeTest, DoesNotReportUnkeptNodes) {
  const NodeId node = InsertChain({1, 2, 3, 4});
  StoreChain(node);
  tree_.Release(node);
  EvictAll();
  EXPECT_THAT(tier_lost_, ElementsAre());
}

using PrefixTreeDeathTest = PrefixTreeTest;

TEST_F(PrefixTreeDeathTest, AbortsOnWrongHolders) {
  const NodeId node = CacheChain({1, 2});
  EXPECT_DEATH(tree_.Release(node), "CHECK failed");
  EXPECT_DEATH(tree_.Keep(tree_.Parent(node), 1), "CHECK failed");
  EXPECT_DEATH(tree_.Unkeep(node, 1), "CHECK failed");
  EXPECT_DEATH(tree_.host().BeginStore(node), "CHECK failed");
  tree_.Keep(node, 1);
  EXPECT_DEATH(tree_.Keep(node, 1), "CHECK failed");
  const BlockId block = pool_.Take();
  EXPECT_DEATH(tree_.Insert(node, Tokens{3, 4}, block), "CHECK failed");
}

TEST_F(PrefixTreeDeathTest, AbortsWhenAHoldBreaksAReservation) {
  const NodeId node = CacheChain({1, 2});
  ASSERT_TRUE(pool_.Reserve(pool_.available()));
  EXPECT_EQ(tree_.HoldCost(node), 1);
  EXPECT_DEATH(tree_.Hold(node), "CHECK failed");
}

TEST_F(PrefixTreeDeathTest, AbortsOnCopiesWithoutASource) {
  const NodeId node = InsertChain({1, 2});
  EXPECT_DEATH(tree_.host().EndStore(node, true), "CHECK failed");
  EXPECT_DEATH(tree_.host().EndLoad(node, true, false), "CHECK failed");
  EXPECT_DEATH(tree_.host().BeginLoad(node, pool_.Take()), "CHECK failed");
  ASSERT_NE(tree_.host().BeginStore(node), kNoPage);
  EXPECT_DEATH(tree_.host().BeginStore(node), "CHECK failed");
  EXPECT_DEATH(tree_.Release(node), "CHECK failed");  // while a copy is in flight
}

TEST_F(PrefixTreeDeathTest, AbortsOnBlocksTheCallerDoesNotOwn) {
  const NodeId node = InsertChain({1, 2});
  EXPECT_DEATH(tree_.Insert(node, Tokens{3, 4}, kNullBlock), "CHECK failed");
  EXPECT_DEATH(tree_.Insert(node, Tokens{3, 4, 5}, pool_.Take()), "CHECK failed");
  EXPECT_DEATH(tree_.InsertTail(node, kBlockSize, pool_.Take()), "CHECK failed");
}

}  // namespace
}  // namespace quire

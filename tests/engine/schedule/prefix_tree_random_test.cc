// Seeded random programs of everything that can happen to a prefix tree and its pool, in lockstep
// with a slow reference: lookups, holds, keeps, growth, tails, copies that end in any order and any
// way, imports, drops, pressure, and lost devices. A failure prints its seed; --seed=N runs that
// program alone, --steps=N runs programs until so many operations are done.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/schedule/reference_tree.h"

namespace quire {
namespace {

using Node = ReferenceTree::Node;

uint64_t only_seed = 0;            // --seed
int64_t steps_wanted = 1'000'000;  // --steps

uint64_t running_seed = 0;

// Also when a CHECK aborts.
void PrintSeed(int) { std::fprintf(stderr, "failed; repeat with --seed=%lu\n", running_seed); }

// How often what is rare happened, over all programs.
struct Tally {
  int64_t found = 0, evicted = 0, kept_lost = 0, adopted = 0, not_adopted = 0, husks_filled = 0;
  int64_t pages_reclaimed = 0, doomed = 0, lost = 0, forgotten_devices = 0, tails_taken = 0;
};
Tally tally;

class Program final : public NodeKeeper {
 public:
  explicit Program(uint64_t seed)
      : random_(seed),
        block_size_(Between(1, 3)),
        num_blocks_(Between(1, OneIn(4) ? 40 : 12)),
        num_pages_(OneIn(5) ? 0 : Between(1, 14)),
        vocab_(OneIn(3) ? 1 : 2),
        num_tenants_(OneIn(8) ? 200 : 2),
        pool_(num_blocks_ + 1),
        tree_(pool_, block_size_, num_pages_, OneIn(2) ? 0 : seed),
        reference_(block_size_, num_pages_) {
    tree_.SetKeeper(this);
  }

  void Run(int32_t num_operations) {
    for (int32_t i = 0; i < num_operations && !testing::Test::HasFailure(); ++i) {
      RandomOperation();
      Compare();
    }
    if (!testing::Test::HasFailure()) Quiesce();
  }

  void OnLost(uint64_t keeper, NodeId parent) override {
    ++tally.lost;
    EXPECT_TRUE(parent == kNoNode || tree_.Depth(parent) > 0);
    kept_[keeper] = parent;
  }

 private:
  struct Copy {
    Node* node;
    bool load;
  };

  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % (high - low + 1));
  }
  bool OneIn(int32_t n) { return Between(1, n) == 1; }
  template <typename Container>
  auto& AnyOf(Container& container) {
    return *std::next(container.begin(), random_() % container.size());
  }
  std::vector<int32_t> Tokens(int32_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = Between(0, vocab_ - 1);
    return tokens;
  }

  void RandomOperation() {
    switch (Between(0, 19)) {
      case 0:
      case 1:
      case 2: return Find();
      case 3:
      case 4: return ReleaseAny();
      case 5:
      case 6:
      case 7:
      case 8: return Grow();
      case 9: return Tail();
      case 10: return KeepAny();
      case 11: return UnkeepAny();
      case 12: return BeginStore();
      case 13: return BeginLoad();
      case 14:
      case 15: return EndCopy();
      case 16: return Import();
      case 17: return Drop();
      case 18: return UsePool();
      default:
        if (OneIn(60)) ForgetDevice();
    }
  }

  // --- Holders.
  void Find() {
    const TenantId tenant = Between(1, num_tenants_);
    const std::vector<int32_t> tokens = Tokens(Between(0, 8 * block_size_));
    Node* node = reference_.Find(tenant, tokens);
    const NodeId id = tree_.Find(tenant, tokens);
    const bool new_root =
        node->parent == nullptr && node->holders == 0 && reference_.Children(node).empty();
    if (new_root) node->id = id;
    ASSERT_EQ(id, node->id);
    tally.found += reference_.Depth(node) > 0;
    if (!OneIn(4)) Hold(node);
  }

  void Hold(Node* node) {
    const int32_t cost = reference_.HoldCost(node);
    ASSERT_EQ(tree_.HoldCost(node->id), cost);
    if (cost > pool_.available() || holders_.size() > 12) return;
    tree_.Hold(node->id);
    reference_.Hold(node);
    holders_.push_back(node);
  }

  void ReleaseAny() {
    if (!holders_.empty()) Release(Between(0, static_cast<int32_t>(holders_.size()) - 1));
  }

  void Release(int32_t i) {
    Node* node = holders_[i];
    holders_.erase(holders_.begin() + i);
    tree_.Release(node->id);
    reference_.Release(node);
  }

  void KeepAny() {
    std::vector<Node*> all = reference_.All();
    const uint64_t keeper = Between(0, 9);
    if (all.empty()) return;
    Node* node = AnyOf(all);
    Unkeep(keeper);
    if (!Exists(node)) return;
    tree_.Keep(node->id, keeper);
    reference_.Keep(node, keeper);
    kept_[keeper] = node->id;
  }

  void UnkeepAny() { Unkeep(Between(0, 9)); }

  void Unkeep(uint64_t keeper) {
    const auto kept = kept_.find(keeper);
    if (kept == kept_.end() || kept->second == kNoNode) return;
    for (Node* node : reference_.All()) {
      if (node->id != kept->second) continue;
      tree_.Unkeep(node->id, keeper);
      reference_.Unkeep(node, keeper);
      kept_.erase(kept);
      return;
    }
    FAIL() << "keeper of a node that is not there";
  }

  bool Exists(Node* node) {
    const std::vector<Node*> all = reference_.All();
    return std::ranges::find(all, node) != all.end();
  }

  // --- The pool. A block from it; kNullBlock if none may be had.
  BlockId Take() {
    if (pool_.available() == 0) return kNullBlock;
    Node* victim = pool_.num_free() == 0 ? reference_.Victim() : nullptr;
    const BlockId expected = victim == nullptr ? kNullBlock : victim->kv.block;
    if (victim != nullptr) {
      ++tally.evicted;
      tally.kept_lost += victim == reference_.OldestUnsaved();
      num_kept_lost_ += victim == reference_.OldestUnsaved();
      reference_.Evict();
    }
    const BlockId block = pool_.Take();
    EXPECT_TRUE(expected == kNullBlock || block == expected);
    return block;
  }

  void UsePool() {
    const int32_t dice = Between(0, 4);
    if (dice == 0) {
      const BlockId block = Take();
      if (block != kNullBlock) private_.insert(block);
    } else if (dice <= 2 && !private_.empty()) {
      const BlockId block = AnyOf(private_);
      private_.erase(block);
      pool_.Release(block);
    } else if (dice == 3) {
      pool_.Reserve(Between(0, 3));
    } else {
      pool_.Unreserve(Between(0, pool_.reserved()));
    }
  }

  // --- Growth.
  Node* AnyParent() {
    std::vector<Node*> parents;
    for (Node* node : holders_) {
      if (!node->tail && reference_.Depth(node) < 8) parents.push_back(node);
    }
    return parents.empty() || holders_.size() > 12 ? nullptr : AnyOf(parents);
  }

  void Grow() {
    Node* parent = AnyParent();
    if (parent == nullptr) return;
    const BlockId block = Take();
    if (block == kNullBlock) return;
    const std::vector<int32_t> tokens = Tokens(block_size_);
    Node* node = reference_.Child(parent, tokens);
    const bool adopted = node == nullptr || !node->has_block() || !reference_.Held(node);
    tally.husks_filled += node != nullptr && !node->has_kv();
    const auto inserted = tree_.Insert(parent->id, tokens, block);
    ASSERT_EQ(inserted.adopted, adopted);
    (adopted ? tally.adopted : tally.not_adopted) += 1;
    if (node == nullptr) {
      node = reference_.Add(parent, tokens, false);
      node->id = inserted.node;
    }
    ASSERT_EQ(inserted.node, node->id);
    if (adopted) {
      node->kv.block = block;
    } else {
      private_.insert(block);
    }
    reference_.Hold(node);
    holders_.push_back(node);
    if (OneIn(2))
      Release(static_cast<int32_t>(std::ranges::find(holders_, parent) - holders_.begin()));
  }

  void Tail() {
    if (OneIn(2)) return TakeTail();
    Node* parent = AnyParent();
    if (parent == nullptr || block_size_ == 1) return;
    const BlockId block = Take();
    if (block == kNullBlock) return;
    const std::vector<int32_t> tokens = Tokens(Between(1, block_size_ - 1));
    const NodeId id = tree_.InsertTail(parent->id, static_cast<int32_t>(tokens.size()), block);
    Node* node = reference_.Add(parent, tokens, true);
    node->id = id;
    node->kv.block = block;
    reference_.Hold(node);
    holders_.push_back(node);
  }

  void TakeTail() {
    const auto held = std::ranges::find_if(
        holders_, [](Node* node) { return node->tail && node->kv.on_device(); });
    if (held == holders_.end()) return;
    Node* tail = *held;
    const BlockId expected = tail->holders == 1 ? tail->kv.block : kNullBlock;
    ASSERT_EQ(tree_.TakeTail(tail->id), expected);
    if (expected == kNullBlock) return;
    ++tally.tails_taken;
    private_.insert(expected);
    holders_.erase(held);
    reference_.TakeTail(tail);
  }

  // --- Tiers.
  void BeginStore() {
    std::vector<Node*> all = reference_.All();
    std::erase_if(all,
                  [](Node* node) { return !node->kv.on_device() || node->kv.page != kNoPage; });
    if (all.empty()) return;
    Node* node = AnyOf(all);
    if (reference_.HoldCost(node) > pool_.available()) return;
    tree_.Hold(node->id);
    reference_.Hold(node);
    const bool can = reference_.PageToHave(node->parent);
    const PageId page = tree_.BeginStore(node->id);
    ASSERT_EQ(page != kNoPage, can);
    if (!can) {
      tree_.Release(node->id);
      reference_.Release(node);
      return;
    }
    GivePage(node, page);
    copies_.push_back({node, false});
  }

  void GivePage(Node* node, PageId page) {
    const size_t before = reference_.All().size();
    reference_.GivePage(node, page);
    tally.pages_reclaimed += reference_.All().size() < before;
    node->kv.storing = true;
  }

  void BeginLoad() {
    std::vector<Node*> all = reference_.All();
    std::erase_if(all, [](Node* node) { return !node->kv.on_host() || node->has_block(); });
    if (all.empty()) return;
    Node* node = AnyOf(all);
    if (reference_.HoldCost(node) + 1 > pool_.available()) return;
    tree_.Hold(node->id);
    reference_.Hold(node);
    const BlockId block = Take();
    tree_.BeginLoad(node->id, block);
    node->kv.block = block;
    node->kv.loading = true;
    copies_.push_back({node, true});
  }

  void EndCopy() {
    if (!copies_.empty()) {
      EndCopy(Between(0, static_cast<int32_t>(copies_.size()) - 1), !OneIn(3), OneIn(2));
    }
  }

  void EndCopy(int32_t i, bool ok, bool page_bad) {
    const auto [node, load] = copies_[i];
    copies_.erase(copies_.begin() + i);
    const bool doomed = node->doomed;
    if (load) {
      page_bad = page_bad && !ok;
      tree_.EndLoad(node->id, ok, page_bad);
      if (!ok) node->kv.block = kNullBlock;
    } else {
      tree_.EndStore(node->id, ok);
    }
    reference_.EndCopy(node);
    if (!doomed && !ok && (!load || page_bad)) reference_.LosePages(node);
    for (Node* each : reference_.All()) tally.doomed += each->doomed;
    Compare();
    tree_.Release(node->id);
    reference_.Release(node);
  }

  void Import() {
    Node* parent = AnyParent();
    if (parent == nullptr) return;
    const bool tail = block_size_ > 1 && OneIn(4);
    const std::vector<int32_t> tokens = Tokens(tail ? Between(1, block_size_ - 1) : block_size_);
    Node* node = tail ? nullptr : reference_.Child(parent, tokens);
    const bool has_page = node != nullptr && node->kv.page != kNoPage;
    const bool can = (has_page || reference_.PageToHave(parent)) &&
                     (node == nullptr || reference_.HoldCost(node) <= pool_.available());
    const auto imported = tree_.InsertOnHost(parent->id, tokens, tail);
    ASSERT_EQ(imported.node != kNoNode, can);
    if (!can) return;
    ASSERT_EQ(imported.adopted, !has_page);
    if (node == nullptr) {
      node = reference_.Add(parent, tokens, tail);
      node->id = imported.node;
    }
    ASSERT_EQ(imported.node, node->id);
    reference_.Hold(node);
    if (has_page) {
      holders_.push_back(node);
      return;
    }
    GivePage(node, tree_.Kv(node->id).page);
    copies_.push_back({node, false});
  }

  void Drop() {
    std::vector<Node*> all = reference_.All();
    if (all.empty()) return;
    Node* node = AnyOf(all);
    const bool idle_page = node->has_page() && !reference_.Held(node);
    if (OneIn(2)) {
      const bool can = idle_page && node->has_block();
      ASSERT_EQ(tree_.DropBlock(node->id), can);
      if (can) node->kv.block = kNullBlock;
    } else {
      const bool can = idle_page && std::ranges::none_of(reference_.Children(node), [](Node* each) {
                         return each->has_page();
                       });
      ASSERT_EQ(tree_.DropPage(node->id), can);
      if (can) reference_.LosePage(node);
    }
  }

  void ForgetDevice() {
    ++tally.forgotten_devices;
    for (int32_t i = static_cast<int32_t>(copies_.size()) - 1; i >= 0; --i) {
      const bool import = !copies_[i].load && OneIn(2);  // the server's, which goes on
      if (!import) EndCopy(i, false, false);
    }
    while (!holders_.empty() && !OneIn(5)) ReleaseAny();
    tree_.ForgetDevice();
    reference_.ForgetDevice();
  }

  // --- Everything that can be seen.
  void Compare() {
    if (testing::Test::HasFailure()) return;
    tree_.CheckInvariants();
    std::map<uint64_t, NodeId> kept;
    for (Node* node : reference_.All()) {
      const NodeKv& kv = tree_.Kv(node->id);
      ASSERT_EQ(kv.block, node->kv.block);
      ASSERT_EQ(kv.page, node->kv.page);
      ASSERT_EQ(kv.loading, node->kv.loading);
      ASSERT_EQ(kv.storing, node->kv.storing);
      ASSERT_EQ(tree_.Held(node->id), reference_.Held(node));
      ASSERT_EQ(tree_.IsTail(node->id), node->tail);
      ASSERT_EQ(tree_.Depth(node->id), reference_.Depth(node));
      ASSERT_EQ(tree_.NumTokens(node->id), reference_.NumTokens(node));
      ASSERT_EQ(tree_.Parent(node->id), node->parent->id);
      for (const uint64_t keeper : node->keepers) kept[keeper] = node->id;
    }
    std::map<uint64_t, NodeId> told = kept_;
    std::erase_if(told, [](const auto& each) { return each.second == kNoNode; });
    ASSERT_EQ(told, kept);
    CompareNumbers();
  }

  void CompareNumbers() {
    const int32_t in_use = static_cast<int32_t>(private_.size()) + reference_.NumBlocks();
    ASSERT_EQ(pool_.num_free(), num_blocks_ - in_use);
    ASSERT_EQ(pool_.num_cached(), reference_.NumEvictable());
    ASSERT_EQ(tree_.num_lossless(), reference_.NumLossless());
    ASSERT_EQ(tree_.num_free_pages(), reference_.NumFreePages());
    ASSERT_EQ(tree_.num_kept_lost(), num_kept_lost_);
    Node* unsaved = reference_.OldestUnsaved();
    ASSERT_EQ(tree_.OldestUnsaved(), unsaved == nullptr ? kNoNode : unsaved->id);
  }

  // With nobody left all blocks and pages can be had, and are.
  void Quiesce() {
    while (!copies_.empty()) EndCopy();
    while (!holders_.empty()) ReleaseAny();
    for (uint64_t keeper = 0; keeper < 10; ++keeper) Unkeep(keeper);
    for (const BlockId block : private_) pool_.Release(block);
    private_.clear();
    pool_.Unreserve(pool_.reserved());
    Compare();
    ASSERT_EQ(pool_.available(), num_blocks_);
    ASSERT_EQ(tree_.num_free_pages(), num_pages_);
    while (pool_.available() > 0) private_.insert(Take());
    Compare();
    for (Node* node : reference_.All()) ASSERT_TRUE(node->has_page());
  }

  std::mt19937_64 random_;
  const int32_t block_size_;
  const int32_t num_blocks_;
  const int32_t num_pages_;
  const int32_t vocab_;
  const int32_t num_tenants_;
  BlockPool pool_;
  PrefixTree tree_;
  ReferenceTree reference_;
  std::vector<Node*> holders_;       // one entry a hold
  std::vector<Copy> copies_;         // each holds its node as well
  std::set<BlockId> private_;        // taken, not the tree's
  std::map<uint64_t, NodeId> kept_;  // what keepers were told last
  int64_t num_kept_lost_ = 0;
};

TEST(PrefixTreeRandomTest, AgreesWithTheReference) {
  int64_t steps = 0;
  std::mt19937_64 lengths(1);
  for (uint64_t seed = std::max<uint64_t>(only_seed, 1); steps < steps_wanted; ++seed) {
    running_seed = seed;
    Program program(seed);
    const int32_t length = seed % 10 == 0 ? 3000 : 300;
    program.Run(length);
    steps += length;
    if (HasFailure()) {
      PrintSeed(0);
      return;
    }
    if (only_seed != 0) return;
  }
  EXPECT_GT(tally.found, 0);
  EXPECT_GT(tally.evicted, 0);
  EXPECT_GT(tally.kept_lost, 0);
  EXPECT_GT(tally.not_adopted, 0);
  EXPECT_GT(tally.husks_filled, 0);
  EXPECT_GT(tally.pages_reclaimed, 0);
  EXPECT_GT(tally.doomed, 0);
  EXPECT_GT(tally.lost, 0);
  EXPECT_GT(tally.forgotten_devices, 0);
  EXPECT_GT(tally.tails_taken, 0);
  std::cout << steps << " operations: " << tally.found << " found, " << tally.evicted
            << " evicted, " << tally.kept_lost << " kept ones lost, " << tally.lost
            << " keepers moved, " << tally.doomed << " doomed pages, " << tally.husks_filled
            << " husks filled\n";
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::signal(SIGABRT, quire::PrintSeed);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--seed=")) quire::only_seed = std::stoull(argument.substr(7));
    if (argument.starts_with("--steps=")) quire::steps_wanted = std::stoll(argument.substr(8));
  }
  return RUN_ALL_TESTS();
}

// KvEventSource: what the prefix tree has, told as events. The random programs of
// prefix_tree_random_test and scheduler_session_random_test compare the events with all nodes.
// Covers engine/values/kv_events.cc
// Covers engine/schedule/kv/node_changes.h
#include "engine/schedule/kv/kv_event_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/schedule/kv/prefix_tree.h"
#include "tests/engine/schedule/event_replay.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<int32_t>;

constexpr TenantId kTenant = 7;
constexpr int32_t kBlockSize = 2;

// The values are those of the Python package xxhash.
TEST(KvBlockHashTest, IsTheHashOfParentAndTokens) {
  EXPECT_EQ(HashKvBlock(kNoKvBlock, Tokens{1, 2}), 0xcd3d4c871ee4183au);
  EXPECT_EQ(HashKvBlock(0xcd3d4c871ee4183au, Tokens{3, -4}), 0x8170775a164e17fdu);
  EXPECT_EQ(HashKvBlock(kNoKvBlock, Tokens{}), 0xef46db3751d8e999u);
}

class KvEventSourceTest : public testing::Test {
 protected:
  // Inserts a chain, leaves its deepest node held.
  NodeId Insert(const Tokens& tokens, TenantId tenant = kTenant) {
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
  void Cache(const Tokens& tokens, TenantId tenant = kTenant) {
    tree_.Release(Insert(tokens, tenant));
  }
  void Store(NodeId node) {
    ASSERT_NE(tree_.host().BeginStore(node), kNoPage);
    tree_.host().EndStore(node, true);
  }
  void BeginAndWalk(TenantId tenant = kTenant) {
    source_.Begin(tenant);
    while (source_.Continue(1000)) {
    }
  }
  // One event a line, as text.
  std::vector<std::string> Take(TenantId tenant = kTenant) {
    std::vector<std::string> lines;
    for (const KvEventSource::Change& change : source_.Take()) {
      EXPECT_EQ(change.tenant, tenant);
      replays_[tenant].Apply(change.events, kBlockSize);
      for (const KvEvent& event : change.events) lines.push_back(Text(event));
    }
    return lines;
  }
  static std::string Text(const KvEvent& event) {
    if (event.kind == KvEvent::Kind::kCleared) return "cleared";
    const bool stored = event.kind == KvEvent::Kind::kStored;
    std::string text = std::string(Name(event.tier)) + (stored ? " +" : " -");
    if (!stored) return text + std::to_string(event.blocks.size());
    text += " " + std::to_string(event.depth) + ":";
    for (const int32_t token : event.tokens) text += " " + std::to_string(token);
    return text;
  }

  BlockPool pool_{9};
  PrefixTree tree_{pool_, kBlockSize, 8};
  KvEventSource& source_ = tree_.events();
  std::map<TenantId, EventReplay> replays_;
};

TEST_F(KvEventSourceTest, TellsStoredChainsInOneEventAndTheirEvictionBlockByBlock) {
  BeginAndWalk();
  Cache({1, 2, 3, 4, 5, 6});
  EXPECT_THAT(Take(), ElementsAre("device + 0: 1 2 3 4 5 6"));
  Cache({1, 2, 9, 9});
  EXPECT_THAT(Take(), ElementsAre("device + 1: 9 9"));
  std::vector<BlockId> taken;
  while (pool_.num_free() > 0) taken.push_back(pool_.Take());
  pool_.Take();
  pool_.Take();
  EXPECT_THAT(Take(), ElementsAre("device -2"));
  EXPECT_EQ(replays_[kTenant].blocks().size(), 2u);
}

TEST_F(KvEventSourceTest, TellsTheTiersOfABlockApart) {
  BeginAndWalk();
  const NodeId node = Insert({1, 2});
  EXPECT_THAT(Take(), ElementsAre("device + 0: 1 2"));
  ASSERT_NE(tree_.host().BeginStore(node), kNoPage);
  EXPECT_THAT(Take(), IsEmpty()) << "the page is being filled";
  tree_.host().EndStore(node, true);
  EXPECT_THAT(Take(), ElementsAre("host + 0: 1 2"));
  tree_.Release(node);
  ASSERT_TRUE(tree_.host().DropBlock(node));
  EXPECT_THAT(Take(), ElementsAre("device -1"));
  tree_.Hold(node);
  tree_.host().BeginLoad(node, pool_.Take());
  EXPECT_THAT(Take(), IsEmpty()) << "the block is being filled";
  tree_.host().EndLoad(node, true, false);
  EXPECT_THAT(Take(), ElementsAre("device + 0: 1 2"));
}

TEST_F(KvEventSourceTest, DoesNotTellChangesThatCancelOut) {
  BeginAndWalk();
  const NodeId node = Insert({1, 2});
  Store(node);
  tree_.Release(node);
  ASSERT_TRUE(tree_.host().DropBlock(node));
  EXPECT_THAT(Take(), ElementsAre("host + 0: 1 2"));
  tree_.Hold(node);
  tree_.host().BeginLoad(node, pool_.Take());
  tree_.host().EndLoad(node, false, false);
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(KvEventSourceTest, TellsExistingBlocksInPartsParentsFirst) {
  Cache({1, 2, 3, 4, 5, 6});
  Cache({1, 2, 7, 8});
  source_.Begin(kTenant);
  std::vector<std::string> lines;
  bool more = true;
  while (more) {
    more = source_.Continue(1);
    for (const std::string& line : Take()) lines.push_back(line);
  }
  EXPECT_THAT(lines, ElementsAre("device + 0: 1 2", "device + 1: 3 4", "device + 2: 5 6",
                                 "device + 1: 7 8"));
}

TEST_F(KvEventSourceTest, TellsTheAncestorsOfABlockThatComesDuringTheWalkFirst) {
  Cache({1, 2, 3, 4});
  source_.Begin(kTenant);
  Cache({1, 2, 3, 4, 5, 6});
  const std::vector<KvEventSource::Change> changes = source_.Take();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_FALSE(changes[0].complete);
  ASSERT_EQ(changes[0].events.size(), 1u);
  EXPECT_EQ(Text(changes[0].events[0]), "device + 0: 1 2 3 4 5 6");
  while (source_.Continue(3)) {
  }
  const std::vector<KvEventSource::Change> rest = source_.Take();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_TRUE(rest[0].complete);
  EXPECT_THAT(rest[0].events, IsEmpty());
}

TEST_F(KvEventSourceTest, KeepsTenantsApart) {
  Cache({1, 2}, 1);
  BeginAndWalk(2);
  EXPECT_THAT(Take(2), IsEmpty());
  Cache({3, 4}, 1);
  EXPECT_THAT(Take(2), IsEmpty());
  Cache({1, 2}, 2);
  EXPECT_THAT(Take(2), ElementsAre("device + 0: 1 2"));
  source_.Begin(1);
  while (source_.Continue(1000)) {
  }
  EXPECT_THAT(Take(1), ElementsAre("device + 0: 1 2", "device + 0: 3 4"));
}

TEST_F(KvEventSourceTest, DoesNotTellOfTails) {
  BeginAndWalk();
  Take();
  const NodeId node = Insert({1, 2});
  const NodeId tail = tree_.InsertTail(node, 1, pool_.Take());
  EXPECT_THAT(Take(), ElementsAre("device + 0: 1 2"));
  tree_.Release(tail);
  tree_.Release(node);
  EXPECT_THAT(Take(), IsEmpty());
}

TEST_F(KvEventSourceTest, TellsTheLossOfTheLastBlockAsCleared) {
  BeginAndWalk();
  Cache({1, 2, 3, 4});
  Take();
  tree_.ForgetDevice();
  EXPECT_THAT(Take(), ElementsAre("cleared"));
  Cache({1, 2});
  EXPECT_THAT(Take(), ElementsAre("device + 0: 1 2"));
}

TEST_F(KvEventSourceTest, BeginsAgainFromNothing) {
  BeginAndWalk();
  Cache({1, 2, 3, 4});
  Take();
  source_.End(kTenant);
  Cache({5, 6});
  BeginAndWalk();
  replays_.clear();
  EXPECT_EQ(Take().size(), 2u);
  EXPECT_EQ(replays_[kTenant].blocks().size(), 3u);
}

TEST_F(KvEventSourceTest, FlushDropsTheBlocksOfOneTenantThatAreNotHeldOrKept) {
  BeginAndWalk();
  const NodeId held = Insert({1, 2});
  const NodeId saved = Insert({1, 2, 3, 4});
  Store(held);
  Store(saved);
  tree_.Release(saved);
  const NodeId kept = Insert({5, 6});
  tree_.Release(kept);
  tree_.Keep(kept, 3);
  Cache({7, 8});
  Cache({9, 9}, kTenant + 1);
  Take();

  const FlushedCache flushed = tree_.Flush({.tenant = kTenant});
  EXPECT_EQ(flushed.blocks, 2);
  EXPECT_EQ(flushed.pages, 1);
  EXPECT_EQ(flushed.kept_blocks, 3);
  EXPECT_EQ(flushed.kept_pages, 1);
  EXPECT_THAT(Take(), ElementsAre("device -1", "host -1", "device -1"));
  tree_.CheckInvariants();

  EXPECT_EQ(tree_.Flush({.sessions = true}).blocks, 2);
  tree_.Release(held);
  EXPECT_EQ(tree_.Flush({}).blocks, 1);
  EXPECT_EQ(pool_.num_free(), pool_.total());
  EXPECT_THAT(Take(), ElementsAre("cleared"));
  tree_.CheckInvariants();
}

}  // namespace
}  // namespace quire

// ChildIndex and IdLists against maps, with a random hash and with one that always collides.
#include "engine/schedule/containers/child_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace quire {
namespace {

constexpr uint64_t kAllEqual = 0;

class ChildIndexTest : public testing::TestWithParam<uint64_t> {};

TEST_P(ChildIndexTest, AgreesWithAMapOverRandomCalls) {
  constexpr int32_t kBlockSize = 3;
  using Key = std::pair<int32_t, std::vector<int32_t>>;
  std::mt19937 random(5);
  int32_t capacity = 20;
  ChildIndex index(capacity, kBlockSize, GetParam());
  std::map<Key, int32_t> model;
  std::vector<int32_t> free_nodes(capacity);
  for (int32_t i = 0; i < capacity; ++i) free_nodes[i] = i;
  for (int i = 0; i < 60000; ++i) {
    if (i == 20000 || i == 40000) {
      for (int32_t node = capacity; node < 3 * capacity; ++node) free_nodes.push_back(node);
      index.Grow(capacity *= 3);
    }
    Key key{static_cast<int32_t>(random() % 4), std::vector<int32_t>(kBlockSize)};
    for (int32_t& token : key.second) token = static_cast<int32_t>(random() % 3) - 1;
    const auto found = model.find(key);
    ASSERT_EQ(index.Find(key.first, key.second),
              found == model.end() ? IdLists::kNone : found->second);
    if (found != model.end()) {
      ASSERT_TRUE(std::ranges::equal(index.TokensOf(found->second), key.second));
      if (random() % 2 == 0) continue;
      index.Erase(found->second);
      ASSERT_FALSE(index.Contains(found->second));
      free_nodes.push_back(found->second);
      model.erase(found);
    } else if (!free_nodes.empty()) {
      index.Insert(free_nodes.back(), key.first, key.second);
      ASSERT_TRUE(index.Contains(free_nodes.back()));
      model[key] = free_nodes.back();
      free_nodes.pop_back();
    }
  }
  EXPECT_GT(model.size(), 40u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ChildIndexTest, testing::Values(kAllEqual, 1, 77));

TEST(IdListsTest, AgreesWithListsOverRandomCalls) {
  constexpr int32_t kLists = 4;
  constexpr int32_t kIds = 30;
  std::mt19937 random(6);
  IdLists lists(kLists, kIds / 2);
  lists.Grow(kLists, kIds);
  std::vector<std::list<int32_t>> model(kLists);
  for (int i = 0; i < 20000; ++i) {
    const int32_t id = static_cast<int32_t>(random() % kIds);
    const int32_t list = static_cast<int32_t>(random() % kLists);
    if (lists.Contains(id)) {
      model[lists.ListOf(id)].remove(id);
      lists.Erase(id);
    } else {
      lists.PushBack(list, id);
      model[list].push_back(id);
      ASSERT_EQ(lists.ListOf(id), list);
    }
    for (int32_t each = 0; each < kLists; ++each) {
      std::list<int32_t> seen;
      for (int32_t at = lists.Front(each); at != IdLists::kNone; at = lists.Next(at)) {
        seen.push_back(at);
      }
      ASSERT_EQ(seen, model[each]);
      ASSERT_EQ(lists.size(each), static_cast<int32_t>(seen.size()));
    }
  }
}

TEST(IdListsDeathTest, AbortsOnErasingAnIdThatIsInNoList) {
  IdLists lists(1, 2);
  EXPECT_DEATH(lists.Erase(0), "CHECK failed");
}

}  // namespace
}  // namespace quire

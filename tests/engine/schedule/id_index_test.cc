// IdIndex against std::map, with ids that collide.
#include "engine/schedule/containers/id_index.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "engine/schedule/sequence.h"

namespace quire {
namespace {

void CompareOverRandomCalls(IdIndex& index, uint64_t id_range, size_t max_size) {
  std::vector<Sequence> sequences(16);
  std::map<RequestId, Sequence*> model;
  std::mt19937_64 random(7);
  for (int i = 0; i < 50000; ++i) {
    const RequestId id = 1 + random() % id_range;
    if (random() % 2 == 0 && model.size() < max_size && !model.contains(id)) {
      Sequence* sequence = &sequences[random() % sequences.size()];
      index.Insert(id, sequence);
      model[id] = sequence;
    } else if (!model.empty()) {
      const auto victim = std::next(model.begin(), random() % model.size());
      index.Erase(victim->first);
      model.erase(victim);
    }
    ASSERT_EQ(index.size(), model.size());
    const auto found = model.find(id);
    ASSERT_EQ(index.Find(id), found == model.end() ? nullptr : found->second);
    if (i % 100 != 0) continue;
    for (const auto& [known, sequence] : model) ASSERT_EQ(index.Find(known), sequence);
  }
}

TEST(IdIndexTest, AgreesWithAMapWhenFull) {
  IdIndex index(30);
  CompareOverRandomCalls(index, 90, 30);
}

TEST(IdIndexTest, GrowsBeyondItsCapacity) {
  IdIndex index(2);
  CompareOverRandomCalls(index, 400, 200);
}

TEST(IdIndexTest, IsEmptyAtFirst) {
  IdIndex index(0);
  EXPECT_EQ(index.Find(0), nullptr);
  EXPECT_EQ(index.Find(1), nullptr);
  EXPECT_EQ(index.size(), 0u);
}

TEST(IdIndexDeathTest, AbortsOnADuplicateOrUnknownId) {
  Sequence sequence;
  IdIndex index(4);
  index.Insert(5, &sequence);
  EXPECT_DEATH(index.Insert(5, &sequence), "CHECK failed");
  EXPECT_DEATH(index.Insert(0, &sequence), "CHECK failed");
  EXPECT_DEATH(index.Erase(6), "CHECK failed");
}

}  // namespace
}  // namespace quire

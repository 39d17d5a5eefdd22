// GuideCache: what is found, and what is given up first.
#include "server/structured/guide_cache.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

class GuideOf final : public CompiledGuide {
 public:
  explicit GuideOf(size_t bytes) : bytes_(bytes) {}
  std::unique_ptr<TokenGuide> Start() const override { return nullptr; }
  size_t bytes() const override { return bytes_; }

 private:
  const size_t bytes_;
};

GrammarSource Regex(const std::string& text) { return {.kind = GrammarKind::kRegex, .text = text}; }
std::shared_ptr<const CompiledGuide> Guide(size_t bytes = 100) {
  return std::make_shared<const GuideOf>(bytes);
}

TEST(GuideCacheTest, FindsWhatTheTenantInserted) {
  GuideCache cache(10, 1 << 20);
  const auto guide = Guide();
  cache.Insert(7, Regex("a"), guide);
  EXPECT_EQ(cache.Find(7, Regex("a")), guide);
  EXPECT_EQ(cache.Find(7, Regex("b")), nullptr);
  EXPECT_EQ(cache.Find(8, Regex("a")), nullptr) << "another tenant's";
  EXPECT_EQ(cache.Find(7, {.kind = GrammarKind::kGbnf, .text = "a"}), nullptr);
  EXPECT_GE(cache.bytes(), 100u);
}

TEST(GuideCacheTest, ChoicesAreToldApartByTheirEnds) {
  GuideCache cache(10, 1 << 20);
  cache.Insert(0, {.kind = GrammarKind::kChoice, .choices = {"ab", "c"}}, Guide());
  EXPECT_EQ(cache.Find(0, {.kind = GrammarKind::kChoice, .choices = {"a", "bc"}}), nullptr);
  EXPECT_EQ(cache.Find(0, {.kind = GrammarKind::kChoice, .choices = {"ab1:c"}}), nullptr);
  EXPECT_NE(cache.Find(0, {.kind = GrammarKind::kChoice, .choices = {"ab", "c"}}), nullptr);
}

TEST(GuideCacheTest, KeepsNoMoreThanItsBoundsAndTheLatestUsed) {
  GuideCache cache(3, 1 << 20);
  for (const char* text : {"a", "b", "c"}) cache.Insert(1, Regex(text), Guide());
  EXPECT_NE(cache.Find(1, Regex("a")), nullptr);
  cache.Insert(1, Regex("d"), Guide());
  EXPECT_EQ(cache.Find(1, Regex("b")), nullptr) << "the one that was used least recently";
  EXPECT_NE(cache.Find(1, Regex("a")), nullptr);
  GuideCache small(100, 10'000);
  for (int i = 0; i < 20; ++i) small.Insert(1, Regex(std::to_string(i)), Guide(2000));
  EXPECT_LE(small.bytes(), 10'000u);
  EXPECT_NE(small.Find(1, Regex("19")), nullptr);
  small.Insert(1, Regex("huge"), Guide(20'000));
  EXPECT_LE(small.bytes(), 10'000u);
}

TEST(GuideCacheTest, AFloodOfOneTenantCostsThatTenantAlone) {
  GuideCache cache(100, 50'000);
  cache.Insert(1, Regex("mine"), Guide(5000));
  for (int i = 0; i < 200; ++i) cache.Insert(2, Regex(std::to_string(i)), Guide(5000));
  EXPECT_NE(cache.Find(1, Regex("mine")), nullptr);
}

}  // namespace
}  // namespace quire

// ModuleList: names, wildcards and regular expressions cover the modules that the programs which
// write them mean.
#include "engine/model/config/module_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

bool Covers(const std::string& entry, const std::string& module) {
  ModuleList list;
  EXPECT_TRUE(list.Add(entry).ok()) << entry;
  const absl::StatusOr<bool> covers = list.Covers(module);
  EXPECT_TRUE(covers.ok()) << covers.status();
  return covers.ok() && *covers;
}

constexpr char kQuery[] = "model.layers.1.self_attn.q_proj";

TEST(ModuleListTest, ANameCoversItselfAndWhatIsInside) {
  EXPECT_TRUE(Covers(kQuery, kQuery));
  EXPECT_TRUE(Covers("model.layers.1", kQuery));
  EXPECT_TRUE(Covers("model", kQuery));
  EXPECT_FALSE(Covers("model.layers.1", "model.layers.10.self_attn.q_proj"));
  EXPECT_FALSE(Covers("q_proj", kQuery));
  EXPECT_FALSE(Covers("lm_head", kQuery));
  EXPECT_FALSE(Covers("", kQuery));
}

// As re.match: anchored at the beginning, not at the end.
TEST(ModuleListTest, RegularExpressionsMatchTheBeginning) {
  EXPECT_TRUE(Covers("re:.*q_proj", kQuery));
  EXPECT_TRUE(Covers("re:.*self_attn", kQuery));
  EXPECT_TRUE(Covers("re:model[.]layers[.][13][.].*(q|k|v)_proj$", kQuery));
  EXPECT_TRUE(Covers("re:^model\\.layers\\.(?!0\\.)", kQuery));
  EXPECT_FALSE(Covers("re:self_attn", kQuery));
  EXPECT_FALSE(Covers("re:.*lm_head", kQuery));
  EXPECT_FALSE(Covers("re:vision_tower.*", kQuery));
}

TEST(ModuleListTest, AFragmentCoversWhatContainsIt) {
  ModuleList list;
  list.AddFragment("1.self");
  list.AddFragment("*head");
  EXPECT_TRUE(*list.Covers(kQuery));
  EXPECT_TRUE(*list.Covers("model.layers.11.self_attn.q_proj"));
  EXPECT_FALSE(*list.Covers("model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(*list.Covers("lm_head"));
}

TEST(ModuleListTest, AnEndingIsOfWholeNames) {
  ModuleList list;
  list.AddEnding("q_proj");
  list.AddEnding("mlp.up");
  EXPECT_TRUE(*list.Covers(kQuery));
  EXPECT_TRUE(*list.Covers("q_proj"));
  EXPECT_FALSE(*list.Covers("model.seq_proj"));
  EXPECT_FALSE(*list.Covers("model.layers.1.mlp.up_proj"));
}

TEST(ModuleListTest, WildcardsMatchTheWholeName) {
  EXPECT_TRUE(Covers("model.layers.1.*", kQuery));
  EXPECT_TRUE(Covers("*self_attn*", kQuery));
  EXPECT_TRUE(Covers("*", kQuery));
  EXPECT_FALSE(Covers("*self_attn", kQuery));
  EXPECT_FALSE(Covers("model.layers.1.*k_proj", kQuery));
  // Everything else stands for itself.
  EXPECT_FALSE(Covers("model.layer[s].*", kQuery));
  EXPECT_FALSE(Covers("modelxlayers*", "model.layers"));
  EXPECT_TRUE(Covers("a\\E.*", "a\\E.b"));
  EXPECT_FALSE(Covers("a\\E.*", "a.b"));
}

TEST(ModuleListTest, RefusesWhatCannotBeReadAndWhatNeverEnds) {
  ModuleList list;
  EXPECT_THAT(std::string(list.Add("re:(model").message()), HasSubstr("\"re:(model\""));
  EXPECT_FALSE(list.Add("re:model\\C").ok());
  ASSERT_TRUE(list.Add("re:(a+)+$").ok());
  EXPECT_THAT(std::string(list.Covers(std::string(64, 'a') + "b").status().message()),
              HasSubstr("\"re:(a+)+$\" needs too many steps"));
  ModuleList full;
  for (size_t i = 0; i < ModuleList::kMostExpressions; ++i) {
    ASSERT_TRUE(full.Add(absl::StrCat("re:", i)).ok());
  }
  EXPECT_THAT(std::string(full.Add("one*more").message()), HasSubstr("more than 64"));
  EXPECT_TRUE(full.Add("a.name").ok());
  EXPECT_TRUE(full.Add("a.beginning*").ok());
  EXPECT_TRUE(*full.Covers("a.beginning.of.names"));
  EXPECT_FALSE(*full.Covers("at.a.beginning"));
}

}  // namespace
}  // namespace quire

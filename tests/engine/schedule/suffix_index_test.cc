// The look-up of suffixes against a search of the whole text, on random and on repetitive texts.
#include "engine/schedule/guess/suffix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace quire {
namespace {

// Compares the end of the text with every place in it, the latest first.
int32_t Search(const std::vector<int32_t>& text, int32_t entered) {
  const auto end = static_cast<int32_t>(text.size());
  int32_t best = SuffixIndex::kNone, best_equal = 0, compared = 0;
  for (int32_t place = std::min(entered, end - 1); place >= 1; --place) {
    int32_t equal = 0;
    while (equal < place && equal < 32 && text[place - 1 - equal] == text[end - 1 - equal]) ++equal;
    if (equal < 2) continue;
    if (++compared > 16) break;
    if (equal <= best_equal) continue;
    best_equal = equal;
    best = place;
  }
  return best;
}

// Of `kinds` tokens; with `period`, a token is often the one a period before.
std::vector<int32_t> RandomText(std::mt19937& random, int32_t size, int32_t kinds, int32_t period) {
  std::vector<int32_t> text;
  for (int32_t i = 0; i < size; ++i) {
    const bool repeats = period > 0 && i >= period && random() % 20 > 0;
    text.push_back(repeats ? text[i - period] : static_cast<int32_t>(random() % kinds));
  }
  return text;
}

TEST(SuffixIndexTest, FindsWhatASearchOfTheWholeTextFinds) {
  std::mt19937 random(1);
  int64_t found = 0, missed = 0;
  for (int32_t round = 0; round < 200; ++round) {
    const int32_t kinds = std::array{1, 2, 3, 10, 1000}[random() % 5];
    const std::vector<int32_t> text =
        RandomText(random, 300, kinds, static_cast<int32_t>(random() % 3 * (random() % 40)));
    const auto num_prompt = static_cast<size_t>(random() % 300);
    // Far more lists than pairs, so that none is shared.
    SuffixIndex index(1 << 20);
    for (size_t size = 1; size <= text.size(); ++size) {
      const std::vector<int32_t> known(text.begin(), text.begin() + size);
      const std::span<const int32_t> all(known);
      const size_t split = std::min(num_prompt, size);
      const KnownText parts{all.first(split), all.subspan(split)};
      // Sometimes behind the text, as while a long prompt is read.
      if (random() % 4 > 0) index.Enter(parts, static_cast<int32_t>(size));
      const int32_t place = index.Find(parts);
      ASSERT_EQ(place, Search(known, index.entered())) << "round " << round << ", size " << size;
      (place == SuffixIndex::kNone ? missed : found) += 1;
    }
  }
  EXPECT_GT(found, 10000);
  EXPECT_GT(missed, 5000);
}

TEST(SuffixIndexTest, ReadsAPromptInPieces) {
  const std::vector<int32_t> text = {1, 2, 3, 4, 1, 2};
  const KnownText known{text, {}};
  SuffixIndex index(10);
  index.Enter(known, 1);
  EXPECT_EQ(index.Find(known), SuffixIndex::kNone);
  index.Enter(known, 2);
  EXPECT_EQ(index.Find(known), 2);  // 3 stands behind the first 1, 2
  index.Enter(known, 6);
  EXPECT_EQ(index.Find(known), 2);
  EXPECT_EQ(index.entered(), 6);
}

}  // namespace
}  // namespace quire

// The guesses of a sequence, and the record of them.
// Covers engine/schedule/guess/known_text.h
#include "engine/schedule/guess/guesser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using testing::ElementsAre;

// A guesser and its growing text.
class Text {
 public:
  Text(std::vector<int32_t> prompt, int32_t most) : guesser(1000, most), prompt_(prompt) {
    guesser.Read(known(), 1000);
  }
  KnownText known() const { return {prompt_, output_}; }
  void Add(std::initializer_list<int32_t> tokens) {
    for (const int32_t token : tokens) {
      output_.push_back(token);
      guesser.OnToken(known());
    }
  }
  std::vector<int32_t> Guess(int32_t count) {
    guesser.Guess(known(), count);
    return {guesser.in_flight().begin(), guesser.in_flight().end()};
  }

  Guesser guesser;

 private:
  std::vector<int32_t> prompt_, output_;
};

TEST(GuesserTest, GuessesWhatFollowedTheLastTokens) {
  Text text({1, 2, 3, 4, 5, 6, 7, 8, 9}, 8);
  EXPECT_EQ(text.guesser.Yield(8), 1);
  text.Add({30, 3, 4});
  EXPECT_THAT(text.Guess(4), ElementsAre(5, 6, 7, 8));
  text.guesser.EndStep(2);
  text.Add({5, 6, 40});  // behind a wrong guess it looks again
  EXPECT_EQ(text.guesser.Yield(8), 1);
  text.Add({7, 8});
  EXPECT_THAT(text.Guess(1), ElementsAre(9));
}

TEST(GuesserTest, RepeatsALoopBeyondTheEndOfTheText) {
  Text text({9, 1, 2, 3, 1, 2, 3}, 8);
  EXPECT_THAT(text.Guess(8), ElementsAre(1, 2, 3, 1, 2, 3, 1, 2));
  Text same({5, 5, 5}, 4);
  EXPECT_THAT(same.Guess(4), ElementsAre(5, 5, 5, 5));
}

TEST(GuesserTest, ReadsALongPromptInPieces) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 100; ++i) prompt.push_back(i % 10);
  Guesser guesser(200, 4);
  std::vector<int32_t> output;
  const auto known = [&] { return KnownText{prompt, output}; };
  EXPECT_EQ(guesser.Read(known(), 60), 60);
  output = {0};
  guesser.OnToken(known());  // too early to compare
  EXPECT_EQ(guesser.Yield(4), 1);
  EXPECT_EQ(guesser.Read(known(), 60), 40);  // a place has a token before it: 101 - 1 - 60
  EXPECT_EQ(guesser.Read(known(), 60), 0);
  guesser.Guess(known(), 3);
  EXPECT_THAT(guesser.in_flight(), ElementsAre(1, 2, 3));
}

TEST(GuesserTest, ExpectsWhatTheRecordSays) {
  Text text({1, 2, 3, 4, 1, 2}, 8);
  EXPECT_EQ(text.guesser.Yield(8), 1);  // nothing was right yet
  text.Add({3});                        // right: an eighth of the record
  EXPECT_DOUBLE_EQ(text.guesser.Yield(2), 1 + 1 / 8.0 + 1 / 64.0);
  text.Add({4});  // right again: 1/8 + 7/64
  const double right = 15 / 64.0;
  EXPECT_DOUBLE_EQ(text.guesser.Yield(2), 1 + right + right * right);
  EXPECT_DOUBLE_EQ(text.guesser.Yield(1), 1 + right);
  EXPECT_EQ(text.guesser.Yield(0), 1);
  text.Add({77, 1, 2, 3});  // 77 and 1 were not, nor 2: nothing stood behind 77, 1
  const double later = right * 7 / 8 * 7 / 8 * 7 / 8;
  EXPECT_DOUBLE_EQ(text.guesser.Yield(1), 1 + later + (1 - later) / 8);
}

TEST(GuesserTest, GuessesMoreAfterSuccessAndLessAfterFailure) {
  Text text({5, 5, 5}, 12);
  std::vector<int32_t> lengths;
  for (const int32_t accepted : {4, 8, 12, 3, 0, 1, 2}) {
    lengths.push_back(text.guesser.length());
    text.Guess(text.guesser.length());
    text.guesser.EndStep(accepted);
  }
  EXPECT_THAT(lengths, ElementsAre(4, 8, 12, 12, 4, 1, 2));
  EXPECT_EQ(text.guesser.length(), 4);
}

}  // namespace
}  // namespace quire

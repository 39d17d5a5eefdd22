// The bound on the work of patterns: what exceeds it, what ends it, and what stays within it.
// Covers server/text/pattern/stop_mark.cc
#include "server/text/pattern/text_budget.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/pattern/regex_pattern.h"
#include "server/text/pattern/stop_mark.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

// Cuts a run of n times xy in as many ways as the n-th Fibonacci number; on runs of one character,
// which a start tries, it stops at once.
constexpr char kExploding[] = "(?:xy|xyxy)+[!?]";

std::string Repeat(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

absl::Status FindAll(const std::string& pattern, const std::string& text) {
  const auto made = MakeRegexPattern(pattern);
  if (!made.ok()) return made.status();
  std::vector<Span> matches;
  return (*made)->FindAll(text, &matches);
}

TEST(TextBudgetTest, GivesTheStepsOfItsTextAndNoMore) {
  TextBudget budget(10);
  const int64_t steps = TextBudget::kSteps + 10 * TextBudget::kStepsPerByte;
  EXPECT_TRUE(budget.Take(steps));
  EXPECT_FALSE(budget.Take(1));
  EXPECT_EQ(budget.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(budget.status().message()), HasSubstr(std::to_string(steps)));
  EXPECT_FALSE(budget.Take(0));
}

TEST(TextBudgetTest, InnerBudgetsHideOuterOnes) {
  EXPECT_EQ(TextBudget::OfThread(), nullptr);
  TextBudget outer(0);
  {
    const TextBudget inner(0);
    EXPECT_EQ(TextBudget::OfThread(), &inner);
  }
  EXPECT_EQ(TextBudget::OfThread(), &outer);
  std::thread([] { EXPECT_EQ(TextBudget::OfThread(), nullptr); }).join();
}

TEST(TextBudgetTest, EndsExponentialBacktracking) {
  EXPECT_TRUE(FindAll(kExploding, Repeat("xy", 1000) + "!").ok());
  const absl::Status status = FindAll(kExploding, "--" + Repeat("xy", 64));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("pattern gave up at byte 0"), HasSubstr("steps")));
}

// The library's own limit begins again at each byte where a match may begin, and does not count
// what a repeated item matches.
TEST(TextBudgetTest, EndsWorkThatIsQuadraticInTheText) {
  EXPECT_TRUE(FindAll("[a-z]+[0-9]", std::string(400, 'a')).ok());
  EXPECT_EQ(FindAll("[a-z]+[0-9]", std::string(1 << 20, 'a')).code(), Code::kResourceExhausted);
  EXPECT_EQ(FindAll("a*+[a-z]*+[-+]", std::string(1 << 20, 'a')).code(), Code::kResourceExhausted);
}

TEST(TextBudgetTest, AllMatchesOfATextShareIt) {
  const std::string word = Repeat("xy", 12);  // takes thousands of steps
  const auto made = MakeRegexPattern(kExploding);
  ASSERT_TRUE(made.ok());
  std::vector<Span> matches;
  int words = 0;
  const TextBudget budget(0);
  while ((*made)->FindAll(word, &matches).ok()) ASSERT_LT(++words, 100'000);
  EXPECT_GT(words, 10);
}

TEST(TextBudgetTest, APatternOfARealTokenizerStaysFarBelowIt) {
  const auto made = MakeRegexPattern(
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)"
      R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  ASSERT_TRUE(made.ok()) << made.status();
  const std::string text = Repeat("It's 12 o'clock;\n   the fox (brown) jumps.  \n", 1000);
  TextBudget budget(text.size());
  std::vector<Span> matches;
  ASSERT_TRUE((*made)->FindAll(text, &matches).ok());
  // As many again fit many times.
  EXPECT_TRUE(budget.Take((TextBudget::kStepsPerByte - 16) * static_cast<int64_t>(text.size())));
}

TEST(StopMarkTest, EndsAMatchThatIsRunning) {
  StopMark mark;
  absl::Status status;
  std::atomic<bool> began{false};
  std::thread job([&] {
    const StopMark::Scope scope(&mark);
    // Without the mark: steps for hours.
    const TextBudget budget(size_t{1} << 32);
    began = true;
    status = FindAll(kExploding, Repeat("xy", 1000));
  });
  while (!began) std::this_thread::yield();
  mark.Raise();
  job.join();
  EXPECT_EQ(status.code(), Code::kCancelled) << status;
}

TEST(StopMarkTest, ADeadlineRaisesIt) {
  EXPECT_TRUE(StopMark().Check().ok());
  EXPECT_TRUE(StopMark(SteadyNowNs() + int64_t{1'000'000'000'000}).Check().ok());
  const StopMark past(SteadyNowNs() - 1);
  EXPECT_EQ(past.Check().code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(StopMark::CheckThread().ok());
  const StopMark::Scope scope(&past);
  EXPECT_EQ(StopMark::CheckThread().code(), Code::kDeadlineExceeded);
  const TextBudget budget(size_t{1} << 32);
  EXPECT_EQ(FindAll(kExploding, Repeat("xy", 1000)).code(), Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace quire

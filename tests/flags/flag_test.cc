// SetValue: each accepted form of each kind of value, and the words for what is refused.
#include "flags/flag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace quire::flags {
namespace {

using ::testing::ElementsAre;

std::string Fault(const Flag& flag, const std::string& text) {
  const absl::Status status = SetValue(flag, text);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

double NumberOf(Unit unit, const std::string& text) {
  double value = -1;
  const Flag flag{
      .name = "f", .group = {}, .help = {}, .target = &value, .unit = unit, .highest = 0x1p60};
  EXPECT_TRUE(SetValue(flag, text).ok()) << text;
  return value;
}

TEST(FlagTest, Durations) {
  const std::vector<std::pair<std::string, double>> words = {
      {"90", 90},     {"90s", 90},    {"250ms", 0.25}, {"30m", 1800}, {"30 min", 1800},
      {"1.5h", 5400}, {"2d", 172800}, {"0", 0},        {"0.5 s", 0.5}};
  for (const auto& [text, seconds] : words) {
    EXPECT_DOUBLE_EQ(NumberOf(Unit::kSeconds, text), seconds) << text;
  }
  double value = 7;
  const Flag flag{.name = "f",
                  .group = {},
                  .help = {},
                  .target = &value,
                  .unit = Unit::kSeconds,
                  .highest = 600};
  for (const char* text : {"", "s", "-1s", "1 fortnight", "1h30", "inf", "nan", "1e", "1s s"}) {
    EXPECT_EQ(Fault(flag, text),
              "must be a number, 0 to 600 s, in seconds or as 250ms, 90s, 30m, 2h, 1d");
  }
  EXPECT_EQ(value, 7);
}

TEST(FlagTest, CountsAndSizes) {
  EXPECT_EQ(NumberOf(Unit::kCount, "32k"), 32000);
  EXPECT_EQ(NumberOf(Unit::kCount, "32K"), 32768);
  EXPECT_EQ(NumberOf(Unit::kCount, "2m"), 2e6);
  EXPECT_EQ(NumberOf(Unit::kCount, "2M"), 2 << 20);
  EXPECT_EQ(NumberOf(Unit::kBytes, "1GB"), 1e9);
  EXPECT_EQ(NumberOf(Unit::kBytes, "1GiB"), 0x1p30);
  EXPECT_EQ(NumberOf(Unit::kBytes, "1.5 GiB"), 1.5 * 0x1p30);
  EXPECT_EQ(NumberOf(Unit::kBytes, "64K"), 65536);
  EXPECT_EQ(NumberOf(Unit::kGibibytes, "4"), 4);
  EXPECT_EQ(NumberOf(Unit::kGibibytes, "512MiB"), 0.5);
  EXPECT_EQ(NumberOf(Unit::kGibibytes, "64G"), 64);
}

TEST(FlagTest, SharesMayBePercentages) {
  EXPECT_EQ(NumberOf(Unit::kShare, "0.9"), 0.9);
  EXPECT_EQ(NumberOf(Unit::kShare, "90%"), 0.9);
  EXPECT_EQ(NumberOf(Unit::kShare, "12.5 %"), 0.125);
}

TEST(FlagTest, UnitsOfAnotherKindAreRefused) {
  int32_t value = 0;
  const Flag plain{
      .name = "f", .group = {}, .help = {}, .target = &value, .lowest = 1, .highest = 9};
  EXPECT_EQ(Fault(plain, "1k"), "must be a whole number, 1 to 9");
  EXPECT_EQ(Fault(plain, "50%"), "must be a whole number, 1 to 9");
  EXPECT_EQ(Fault(plain, "1.5"), "must be a whole number, 1 to 9");
  EXPECT_EQ(Fault(plain, "10"), "must be a whole number, 1 to 9");
  const Flag count{
      .name = "f", .group = {}, .help = {}, .target = &value, .unit = Unit::kCount, .highest = 9};
  EXPECT_EQ(Fault(count, "9x"), "must be a whole number, 0 to 9; 32k is 32000, 32K is 32768");
}

TEST(FlagTest, WholeNumbersAreExactToTheirLastDigit) {
  std::optional<uint64_t> seed;
  const Flag flag{.name = "seed", .group = {}, .help = {}, .target = &seed};
  EXPECT_TRUE(SetValue(flag, "18446744073709551615").ok());
  EXPECT_EQ(seed, UINT64_MAX);
  for (const char* text : {"-1", "18446744073709551616", "", "-18446744073709551615", "5x"}) {
    EXPECT_EQ(Fault(flag, text), "must be a whole number, 0 to 18446744073709551615");
  }
  EXPECT_EQ(seed, UINT64_MAX);
}

TEST(FlagTest, SwitchesTakeTheWordsOfBothSides) {
  bool on = false;
  const Flag flag{.name = "f", .group = {}, .help = {}, .target = &on};
  for (const char* text : {"true", "1", "yes", "on", "True"}) {
    on = false;
    EXPECT_TRUE(SetValue(flag, text).ok() && on) << text;
  }
  for (const char* text : {"false", "0", "no", "off"}) {
    on = true;
    EXPECT_TRUE(SetValue(flag, text).ok() && !on) << text;
  }
  EXPECT_EQ(Fault(flag, "maybe"), "must be true or false");
  EXPECT_EQ(ValueText(flag), "false");
}

TEST(FlagTest, WordsHaveOtherSpellingsAndNoCase) {
  std::string word;
  const Flag flag{.name = "f",
                  .group = {},
                  .help = {},
                  .target = &word,
                  .choices = "auto|float32=float|float16=half=fp16"};
  for (const char* text : {"half", "fp16", "float16", "HALF"}) {
    EXPECT_TRUE(SetValue(flag, text).ok()) << text;
    EXPECT_EQ(word, "float16");
  }
  EXPECT_EQ(Fault(flag, "int8"), "must be one of auto, float32, float16");
  EXPECT_EQ(Fault(flag, ""), "must be one of auto, float32, float16");
}

TEST(FlagTest, ListsGrowAndAreCleared) {
  std::vector<std::string> names;
  const Flag flag{.name = "f", .group = {}, .help = {}, .target = &names, .commas = true};
  EXPECT_TRUE(SetValue(flag, "a,b").ok() && SetValue(flag, "c").ok());
  EXPECT_EQ(ValueText(flag), "a,b,c");
  EXPECT_EQ(Fault(flag, "d,"), "must be names, with commas between them");
  ClearList(flag);
  EXPECT_TRUE(names.empty());
  std::vector<uint32_t> ids;
  const Flag numbers{.name = "ids", .group = {}, .help = {}, .target = &ids};
  EXPECT_TRUE(SetValue(numbers, "1,2").ok() && SetValue(numbers, "3").ok());
  EXPECT_THAT(ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(Fault(numbers, "1,-2"),
            "must be whole numbers, 0 to 4294967295, with commas between them");
}

TEST(FlagTest, AFormThatOnlyTheProgramKnowsSaysWhatItWants) {
  std::string taken;
  const TakeText take = [&](const std::string& text) {
    taken = text;
    return text != "bad";
  };
  const Flag flag{.name = "f", .group = {}, .help = {}, .target = take, .wants = "anything good"};
  EXPECT_TRUE(SetValue(flag, "fine").ok());
  EXPECT_EQ(taken, "fine");
  EXPECT_EQ(Fault(flag, "bad"), "must be anything good");
}

}  // namespace
}  // namespace quire::flags

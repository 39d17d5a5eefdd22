// The text of a schedule, and which calls it chooses.
#include "tests/faults/fault_schedule.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

namespace quire::faults {
namespace {

TEST(FaultScheduleTest, ReadsRules) {
  FaultSchedule schedule;
  const std::string text =
      "write,pwrite ENOSPC path=/tmp/x program=quire-server from=3 count=2 one_in=5 seed=9\n"
      "\n"
      "read short\n"
      "clock_gettime jump=-3600 clock=wall\n"
      "malloc ENOMEM size=1048576\n";
  ASSERT_TRUE(schedule.Parse(text));
  ASSERT_EQ(schedule.size(), 4u);
  const Rule& first = schedule.begin()[0];
  EXPECT_TRUE(first.Names("write"));
  EXPECT_TRUE(first.Names("pwrite"));
  EXPECT_FALSE(first.Names("writ"));
  EXPECT_FALSE(first.Names("read"));
  EXPECT_EQ(first.effect, ENOSPC);
  EXPECT_EQ(first.path, "/tmp/x");
  EXPECT_EQ(first.program, "quire-server");
  EXPECT_EQ(first.from, 3u);
  EXPECT_EQ(first.count, 2u);
  EXPECT_EQ(first.one_in, 5u);
  EXPECT_EQ(first.seed, 9u);
  EXPECT_EQ(schedule.begin()[1].effect, Rule::kShort);
  EXPECT_EQ(schedule.begin()[2].jump_ns, -3'600'000'000'000);
  EXPECT_EQ(schedule.begin()[3].size, 1048576u);
  EXPECT_TRUE(schedule.Parse(""));
  EXPECT_EQ(schedule.size(), 0u);
}

TEST(FaultScheduleTest, RefusesWhatIsNoRule) {
  for (const char* text : {"write", "write EWRONG", "write EIO from=x", "write EIO from",
                           "write EIO colour=red", "write EIO one_in=0", "read jump=soon"}) {
    FaultSchedule schedule;
    EXPECT_FALSE(schedule.Parse(text)) << text;
  }
  std::string many;
  for (size_t i = 0; i <= FaultSchedule::kMaxRules; ++i) many += "write EIO\n";
  FaultSchedule schedule;
  EXPECT_FALSE(schedule.Parse(many));
}

// The calls, of the first 20, that fail.
std::vector<uint64_t> Failing(const std::string& text) {
  FaultSchedule schedule;
  EXPECT_TRUE(schedule.Parse(text));
  std::vector<uint64_t> failing;
  for (uint64_t n = 1; n <= 20; ++n) {
    if (FaultSchedule::Fails(schedule.begin()[0], n, failing.size())) failing.push_back(n);
  }
  return failing;
}

TEST(FaultScheduleTest, ChoosesCalls) {
  EXPECT_EQ(Failing("write EIO").size(), 20u);
  EXPECT_EQ(Failing("write EIO from=19"), (std::vector<uint64_t>{19, 20}));
  EXPECT_EQ(Failing("write EIO from=4 count=1"), (std::vector<uint64_t>{4}));
  const std::vector<uint64_t> chosen = Failing("write EIO one_in=3 seed=5");
  EXPECT_EQ(chosen, Failing("write EIO one_in=3 seed=5"));
  EXPECT_NE(chosen, Failing("write EIO one_in=3 seed=6"));
  EXPECT_GT(chosen.size(), 1u);
  EXPECT_LT(chosen.size(), 15u);
}

}  // namespace
}  // namespace quire::faults

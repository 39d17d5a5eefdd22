// The step profiler over a device whose clock the test sets.
#include "kernels/step_profiler.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using enum StepPart;

class FakeProfiler final : public StepProfiler {
 public:
  void BeginRange(const char*, int64_t) override {}
  void EndRange() override {}
  void Record(bool) override {}
  int64_t now_ns = 0;
  int stamps = 0;

 protected:
  void Stamp(int index) override {
    ++stamps;
    stamp_ns_[index] = now_ns;
  }
  void StampEnd(bool keep_last) override {
    if (keep_last) stamp_ns_[-1] = last_end_ns_;
    last_end_ns_ = now_ns;
  }
  int64_t NsBetween(int from, int to) override { return stamp_ns_.at(to) - stamp_ns_.at(from); }

 private:
  std::map<int, int64_t> stamp_ns_;
  int64_t last_end_ns_ = 0;
};

TEST(StepProfilerTest, TimeBelongsToThePartThatWasEntered) {
  FakeProfiler profiler;
  profiler.now_ns = 100;
  profiler.EndStep();  // of a step that is not measured
  profiler.now_ns = 130;
  ASSERT_TRUE(profiler.BeginStep());
  profiler.Enter(kProducts);
  profiler.now_ns = 150;
  profiler.Enter(kProducts);  // still the same part
  profiler.now_ns = 160;
  profiler.Enter(kNorms);
  profiler.now_ns = 161;
  profiler.Enter(kProducts);
  profiler.now_ns = 171;
  profiler.EndStep();
  std::vector<PartTime> parts = {{kCopies, 1}};  // replaced
  profiler.Take(parts);
  EXPECT_THAT(parts, ElementsAre(PartTime{kIdle, 30}, PartTime{kProducts, 30}, PartTime{kNorms, 1},
                                 PartTime{kProducts, 10}));
}

TEST(StepProfilerTest, AStepThatIsNotMeasuredStampsNothing) {
  FakeProfiler profiler;
  profiler.Enter(kProducts);
  profiler.Enter(kNorms);
  profiler.EndStep();
  EXPECT_EQ(profiler.stamps, 0);
}

TEST(StepProfilerTest, TimesWaitForTheirReader) {
  FakeProfiler profiler;
  profiler.now_ns = 10;
  ASSERT_TRUE(profiler.BeginStep());
  profiler.Enter(kSampling);
  profiler.now_ns = 15;
  profiler.EndStep();
  // Another step in flight must not overwrite what the reader has yet to see.
  profiler.now_ns = 40;
  EXPECT_FALSE(profiler.BeginStep());
  profiler.Enter(kAttention);
  profiler.EndStep();
  std::vector<PartTime> parts;
  profiler.Take(parts);
  EXPECT_THAT(parts, ElementsAre(PartTime{kIdle, 10}, PartTime{kSampling, 5}));
  profiler.now_ns = 47;
  EXPECT_TRUE(profiler.BeginStep());
  profiler.Enter(kAttention);
  profiler.EndStep();
  profiler.Take(parts);
  EXPECT_THAT(parts, ElementsAre(PartTime{kIdle, 7}, PartTime{kAttention, 0}));
}

TEST(StepProfilerTest, TheLastPartTakesTheRestOfAStepWithTooManyParts) {
  FakeProfiler profiler;
  ASSERT_TRUE(profiler.BeginStep());
  for (int i = 0; i < 2 * StepProfiler::kMaxParts; ++i) {
    profiler.Enter(i % 2 == 0 ? kProducts : kNorms);
    ++profiler.now_ns;
  }
  profiler.EndStep();
  std::vector<PartTime> parts;
  profiler.Take(parts);
  ASSERT_EQ(parts.size(), StepProfiler::kMaxParts + 1);
  EXPECT_EQ(parts[1].ns, 1u);
  EXPECT_EQ(parts.back().ns, StepProfiler::kMaxParts + 1u);
}

TEST(StepProfilerTest, PartsHaveNames) {
  for (int i = 0; i < kNumStepParts; ++i) {
    EXPECT_STRNE(Name(static_cast<StepPart>(i)), "unknown");
  }
}

}  // namespace
}  // namespace quire

// Which steps are timed, what is counted, and what the timeline shows of steps and copies.
#include "engine/step_observer.h"

#include <string>

#include "engine/base/timeline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kSecond = 1'000'000'000;

// The results of one step, by rank.
class FinishedStep final : public Transport {
 public:
  explicit FinishedStep(std::vector<StepResult> results) : results_(std::move(results)) {}
  void SetWake(WakeEvent*) override {}
  StepPlan* NextSlot() override { return nullptr; }
  void Publish() override {}
  const StepResult* Poll() override { return ResultOf(0); }
  const StepResult* ResultOf(int32_t rank) override {
    const auto index = static_cast<size_t>(rank);
    return index < results_.size() ? &results_[index] : nullptr;
  }
  void Release() override {}
  int in_flight() const override { return 1; }
  bool Submit(const CopyJob&) override { return false; }
  bool PollCopy(CopyAck&) override { return false; }
  int32_t ready_pages() const override { return 0; }
  std::string fault() const override { return ""; }
  bool Recover() override { return false; }
  bool recovering() override { return false; }

 private:
  std::vector<StepResult> results_;
};

StepResult Timed(std::vector<PartTime> parts) {
  StepResult result;
  result.parts = std::move(parts);
  return result;
}

TEST(StepObserverTest, TimesOneStepInTwoSecondsBehindAnother) {
  StepObserver observer;
  EXPECT_FALSE(observer.NextWatch(8 * kSecond, 1).timed);   // the first one sets the pace
  EXPECT_FALSE(observer.NextWatch(10 * kSecond, 0).timed);  // the device may be idle with reason
  EXPECT_TRUE(observer.NextWatch(10 * kSecond, 1).timed);
  EXPECT_FALSE(observer.NextWatch(15 * kSecond, 1).timed);  // the last one's times have not come
  FinishedStep step({Timed({{StepPart::kProducts, 5}})});
  observer.OnStep(step, {.watch = {.timed = true}});
  EXPECT_TRUE(observer.NextWatch(15 * kSecond, 1).timed);
  observer.OnRecovery();  // the step is lost
  EXPECT_FALSE(observer.NextWatch(17 * kSecond - 1, 1).timed);
  EXPECT_TRUE(observer.NextWatch(17 * kSecond, 1).timed);
}

TEST(StepObserverTest, TimesMoreStepsWhileATimelineIsRecorded) {
  StepObserver observer;
  FinishedStep step({Timed({{StepPart::kProducts, 5}})});
  observer.NextWatch(8 * kSecond, 1);
  EXPECT_TRUE(observer.NextWatch(10 * kSecond, 1).timed);
  observer.OnStep(step, {.watch = {.timed = true}});
  ASSERT_TRUE(Timeline::Start(100));
  EXPECT_FALSE(observer.NextWatch(10 * kSecond + 1, 1).timed);
  EXPECT_TRUE(observer.NextWatch(10 * kSecond + kSecond / 2 + 1, 1).timed);
  Timeline::Stop();
}

TEST(StepObserverTest, SumsThePartsOfEachRank) {
  StepObserver observer;
  FinishedStep first({Timed({{StepPart::kIdle, 1}, {StepPart::kProducts, 10}}),
                      Timed({{StepPart::kIdle, 2}, {StepPart::kProducts, 20}})});
  FinishedStep second(
      {Timed({{StepPart::kProducts, 3}, {StepPart::kNorms, 4}, {StepPart::kProducts, 5}}),
       Timed({{StepPart::kSampling, 6}})});
  observer.OnStep(first, {.rows = 1, .tokens = 1, .watch = {.timed = true}});
  observer.OnStep(first, {.rows = 9, .tokens = 9});  // not timed
  observer.OnStep(second, {.rows = 2, .tokens = 7, .watch = {.timed = true}});
  ASSERT_EQ(observer.sampled().size(), 2u);
  const SampledSteps& rank0 = observer.sampled()[0];
  EXPECT_EQ(rank0.steps, 2u);
  EXPECT_THAT(rank0.total, ElementsAre(1, 18, 0, 4, 0, 0, 0, 0));
  EXPECT_THAT(rank0.last, ElementsAre(0, 8, 0, 4, 0, 0, 0, 0));
  EXPECT_EQ(rank0.last_rows, 2);
  EXPECT_EQ(rank0.last_tokens, 7);
  EXPECT_THAT(observer.sampled()[1].total, ElementsAre(2, 20, 0, 0, 0, 6, 0, 0));
}

TEST(StepObserverTest, ProfilesAsManyStepsAsAsked) {
  StepObserver observer;
  observer.ProfileSteps(2, /*uncaptured=*/true);
  for (int i = 0; i < 2; ++i) {
    const StepWatch watch = observer.NextWatch(kSecond, 0);
    EXPECT_TRUE(watch.recorded && watch.uncaptured);
  }
  const StepWatch after = observer.NextWatch(kSecond, 0);
  EXPECT_FALSE(after.recorded || after.uncaptured);
}

// "device 100-200 step", and so on, in the order of the events.
std::vector<std::string> Drawn() {
  std::vector<std::string> lines;
  for (const Timeline::Event& event : Timeline::Stop().events) {
    const char* track = "?";
    if (event.track == Timeline::Track::kRankHost) track = "host";
    if (event.track == Timeline::Track::kRankDevice) track = "device";
    if (event.track == Timeline::Track::kStores) track = "stores";
    if (event.track == Timeline::Track::kLoads) track = "loads";
    lines.push_back(std::string(track) + " " + std::to_string(event.begin_ns) + "-" +
                    std::to_string(event.end_ns) + " " + event.name);
  }
  return lines;
}

TEST(StepObserverTest, DrawsStepsOneBehindTheOther) {
  StepObserver observer;
  ASSERT_TRUE(Timeline::Start(100));
  FinishedStep first({{.step = 1, .started_ns = 100, .enqueued_ns = 110, .finished_ns = 200}});
  FinishedStep second({{.step = 2, .started_ns = 120, .enqueued_ns = 125, .finished_ns = 300}});
  // The parts take 70 ns; the device was idle before them.
  FinishedStep third(
      {{.step = 3,
        .started_ns = 310,
        .enqueued_ns = 320,
        .finished_ns = 400,
        .parts = {{StepPart::kIdle, 25}, {StepPart::kProducts, 50}, {StepPart::kNorms, 20}}}});
  observer.OnStep(first, {.graph_size = 8});
  observer.OnStep(second, {});
  observer.OnStep(third, {.graph_size = 8, .watch = {.timed = true}});
  EXPECT_THAT(Drawn(), ElementsAre("host 100-110 enqueue", "device 100-200 replayed step",
                                   "host 120-125 enqueue", "device 200-300 step",
                                   "host 310-320 enqueue", "device 330-400 timed step",
                                   "device 330-380 products", "device 380-400 norms"));
}

TEST(StepObserverTest, DrawsCopiesByDirection) {
  StepObserver observer;
  ASSERT_TRUE(Timeline::Start(100));
  observer.OnCopyStart({.job = 1, .direction = CopyDirection::kStore});
  observer.OnCopyStart({.job = 2, .direction = CopyDirection::kLoad});
  observer.OnCopyEnd({.job = 2, .num_good = 3, .bytes = 64, .ns = 40}, 100);
  observer.OnCopyEnd({.job = 1, .ns = 10}, 120);
  observer.OnCopyEnd({.job = 7, .ns = 10}, 130);  // of a worker group that is gone
  EXPECT_THAT(Drawn(), ElementsAre("loads 60-100 load", "stores 110-120 store"));
}

}  // namespace
}  // namespace quire

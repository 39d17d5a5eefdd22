// The timeline: off, on, full, and from many threads.
#include "engine/base/timeline.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(TimelineTest, HoldsSpansOnlyWhileItIsOn) {
  { const TimelineSpan span({.name = "before"}); }
  ASSERT_TRUE(Timeline::Start(10));
  EXPECT_FALSE(Timeline::Start(10));
  const int64_t began_ns = SteadyNowNs();
  {
    const TimelineSpan span(
        {.track = Timeline::Track::kText, .lane = 3, .name = "render", .args = {{{"bytes", 12}}}});
    TimelineSpan dropped({.name = "nothing"});
    dropped.Drop();
  }
  const Timeline::Recording recording = Timeline::Stop();
  { const TimelineSpan span({.name = "after"}); }
  ASSERT_EQ(recording.events.size(), 1u);
  EXPECT_EQ(recording.dropped, 0u);
  const Timeline::Event& event = recording.events.front();
  EXPECT_EQ(event.track, Timeline::Track::kText);
  EXPECT_EQ(event.lane, 3);
  EXPECT_STREQ(event.name, "render");
  EXPECT_STREQ(event.args[0].name, "bytes");
  EXPECT_EQ(event.args[0].value, 12);
  EXPECT_GE(event.begin_ns, began_ns);
  EXPECT_GE(event.end_ns, event.begin_ns);
  EXPECT_TRUE(Timeline::Stop().events.empty());
}

TEST(TimelineTest, CountsWhatFindsNoRoom) {
  constexpr size_t kRoom = 1000;
  ASSERT_TRUE(Timeline::Start(kRoom));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 400; ++j) Timeline::Add({.name = "event"});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Timeline::Recording recording = Timeline::Stop();
  EXPECT_EQ(recording.events.size(), kRoom);
  EXPECT_EQ(recording.dropped, 600u);
}

// A span that began before the timeline went on, or ends after it went off, leaves nothing behind.
TEST(TimelineTest, SpansAcrossItsEndsAreLeftOut) {
  {
    const TimelineSpan early({.name = "early"});
    ASSERT_TRUE(Timeline::Start(10));
  }
  {
    const TimelineSpan late({.name = "late"});
    EXPECT_TRUE(Timeline::Stop().events.empty());
  }
  EXPECT_TRUE(Timeline::Stop().events.empty());
  ASSERT_TRUE(Timeline::Start(10));
  EXPECT_TRUE(Timeline::Stop().events.empty());
}

}  // namespace
}  // namespace quire

// A recording as a file of the Trace Event Format, and the step breakdown beside it. The format:
// every complete event ("X") has a time and a duration, and asynchronous ones come in pairs.
#include "server/timeline/trace_file.h"

#include <map>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quire/v1/control.pb.h"
#include "server/timeline/step_breakdown.h"

namespace quire {
namespace {

using nlohmann::json;
using Track = Timeline::Track;

constexpr int64_t kBegin = 5'000'000'000;

json Parsed(Timeline::Recording recording, size_t bytes) {
  TraceFile file(std::move(recording), kBegin, "a \"server\"");
  std::string text;
  int pieces = 0;
  while (file.Next(bytes, &text)) ++pieces;
  EXPECT_FALSE(file.Next(bytes, &text));
  EXPECT_GE(pieces, 1);
  return json::parse(text);
}

Timeline::Recording Mixed() {
  return {.events = {{.name = "plan", .begin_ns = kBegin + 1'500, .end_ns = kBegin + 4'000},
                     {.track = Track::kRankDevice,
                      .lane = 1,
                      .name = "replayed step",
                      .begin_ns = kBegin - 10,  // began before the recording
                      .end_ns = kBegin + 2'000'250,
                      .args = {{{"rows", 3}, {"tokens", 7}}}},
                     {.track = Track::kRequests,
                      .name = "decode",
                      .begin_ns = kBegin + 100,
                      .end_ns = kBegin + 900,
                      .args = {{{"prompt_tokens", 12}}},
                      .label = "me\"and\xff"}},
          .dropped = 4};
}

TEST(TraceFileTest, AnEmptyRecordingIsAFileToo) {
  const json file = Parsed({}, 1 << 20);
  EXPECT_EQ(file["otherData"]["about"], "a \"server\"");
  EXPECT_EQ(file["otherData"]["dropped_events"], 0);
  for (const json& event : file["traceEvents"]) EXPECT_EQ(event["ph"], "M");
}

TEST(TraceFileTest, HoldsEveryEventWhateverTheSizeOfAPiece) {
  const json whole = Parsed(Mixed(), 1 << 20);
  EXPECT_EQ(Parsed(Mixed(), 1), whole);
  EXPECT_EQ(whole["otherData"]["dropped_events"], 4);
  std::map<std::string, json> by_name;
  std::map<std::pair<int, int>, std::string> threads;
  for (const json& event : whole["traceEvents"]) {
    if (event["name"] == "thread_name") {
      threads[{event["pid"], event["tid"]}] = event["args"]["name"];
    }
    if (event["ph"] != "M")
      by_name[event["name"].get<std::string>() + event["ph"].get<std::string>()] = event;
  }
  ASSERT_EQ(by_name.size(), 4u);
  const json& plan = by_name.at("planX");
  EXPECT_EQ(plan["ts"], 1.5);
  EXPECT_EQ(plan["dur"], 2.5);
  EXPECT_EQ((threads[{plan["pid"], plan["tid"]}]), "scheduler");
  const json& step = by_name.at("replayed stepX");
  EXPECT_EQ(step["ts"], 0);
  EXPECT_EQ(step["dur"], 2000.25);
  EXPECT_EQ(step["args"], json({{"rows", 3}, {"tokens", 7}}));
  EXPECT_EQ((threads[{step["pid"], step["tid"]}]), "device");
  const json& begin = by_name.at("decodeb");
  const json& end = by_name.at("decodee");
  EXPECT_EQ(begin["ts"], 0.1);
  EXPECT_EQ(end["ts"], 0.9);
  EXPECT_EQ(begin["id"], end["id"]);
  EXPECT_EQ(begin["cat"], end["cat"]);
  EXPECT_EQ(begin["args"]["prompt_tokens"], 12);
}

TEST(StepBreakdownTest, IsTheMeanOfTheStepsTimedBetween) {
  EngineStats before, after;
  before.steps = 10;
  before.generated_tokens = 100;
  before.prompt_tokens = 5;
  before.sampled.resize(1);
  before.sampled[0] = {.steps = 2, .total = {1'000'000, 8'000'000}};
  after = before;
  after.steps = 40;
  after.generated_tokens = 400;
  after.prompt_tokens = 25;
  after.sampled.resize(2);  // the second rank's first sample came meanwhile
  after.sampled[0] = {.steps = 6, .total = {3'000'000, 16'000'000, 0, 4'000'000}};
  v1::StepBreakdown breakdown;
  FillBreakdown(before, after, 1.5, &breakdown);
  EXPECT_EQ(breakdown.seconds(), 1.5);
  EXPECT_EQ(breakdown.steps(), 30u);
  EXPECT_EQ(breakdown.generated_tokens(), 300u);
  EXPECT_EQ(breakdown.prompt_tokens(), 20u);
  ASSERT_EQ(breakdown.ranks_size(), 2);
  EXPECT_EQ(breakdown.ranks(0).timed_steps(), 4u);
  std::map<std::string, double> seconds;
  for (const auto& part : breakdown.ranks(0).parts()) seconds[part.name()] = part.seconds();
  EXPECT_DOUBLE_EQ(seconds.at("idle"), 0.0005);
  EXPECT_DOUBLE_EQ(seconds.at("products"), 0.002);
  EXPECT_DOUBLE_EQ(seconds.at("norms"), 0.001);
  EXPECT_DOUBLE_EQ(seconds.at("sampling"), 0);
  EXPECT_EQ(breakdown.ranks(1).parts_size(), 0);
}

}  // namespace
}  // namespace quire

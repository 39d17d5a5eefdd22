// The log lines about captured steps and their levels.
#include "server/admin/graph_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/log.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The lines that `say` logs at this level and above.
template <typename Say>
std::string LogOf(Severity minimum, Say say) {
  std::FILE* const file = std::tmpfile();
  StartLog(LogFormat::kText, minimum, fileno(file));
  say();
  StopLog();
  std::rewind(file);
  std::string text(4096, ' ');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(GraphLogTest, CapturesAreDebugLinesAndTheirSumIsAnInfoLine) {
  const WorkerReport report{.description = "",
                            .memory = {},
                            .seconds = {},
                            .graphs = {{.size = 1, .nodes = 325, .capture_ms = 1.5, .bytes = 1000},
                                       {.size = 8, .nodes = 357, .capture_ms = 2.5, .bytes = 24}}};
  const auto say = [&] { LogGraphs(report); };
  EXPECT_THAT(LogOf(Severity::kDebug, say),
              AllOf(HasSubstr("graph captured size=1 nodes=325 capture_ms=1.5 bytes=1000"),
                    HasSubstr("graph captured size=8 nodes=357 capture_ms=2.5 bytes=24")));
  EXPECT_THAT(
      LogOf(Severity::kInfo, say),
      AllOf(HasSubstr("graphs captured sizes=2 capture_ms=4 bytes=1024"), Not(HasSubstr("nodes"))));
  EXPECT_EQ(LogOf(Severity::kDebug, [] { LogGraphs({}); }), "") << "no captures, no word of them";
}

TEST(GraphLogTest, ReplayedSizesLogCountAndPadding) {
  EngineStats stats;
  stats.graphs = {{.size = 1}, {.size = 8, .replays = 10, .padded_rows = 20}};
  EXPECT_THAT(
      LogOf(Severity::kInfo, [&] { LogGraphUse(stats); }),
      AllOf(HasSubstr("graph used size=8 replays=10 padded_share=0.25"), Not(HasSubstr("size=1"))));
}

}  // namespace
}  // namespace quire

// The text format, against the library's serializer.
#include "server/metrics/exposition.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "server/metrics/metric_registry.h"

namespace quire {
namespace {

TEST(ExpositionTest, IsWhatTheLibraryWrites) {
  MetricRegistry registry("a \"model\"\\of\nmany");
  registry.OneGauge("plain", "Help with \"quotes\".").Set(-12.5);
  auto& family = registry.Gauges("labelled", "Several series.");
  double value = 1e-9;
  for (const char* name : {"one", "two", "three"}) family.Add({{"name", name}}).Set(value *= 1e7);
  family.Add({{"name", "large"}}).Set(123456789012.0);
  family.Add({{"name", "tenth"}}).Set(0.1);
  family.Add({{"name", "infinite"}}).Set(std::numeric_limits<double>::infinity());
  registry.OneCounter("count_total", "A counter.").Increment(3);
  auto& histogram = registry.OneHistogram("times", "Buckets.", FirstTokenBuckets());
  for (const double seconds : {.0001, .1, .1, 3.0, 1e6}) histogram.Observe(seconds);
  registry.OneHistogram("sizes", "Large buckets.", {1, 16384, 1e6, 2.5e7}).Observe(70000);
  const std::vector<prometheus::MetricFamily> families = registry.registry.Collect();
  EXPECT_EQ(Exposition(families), prometheus::TextSerializer().Serialize(families));
}

// The library writes neither as Prometheus' documentation of the format has it.
TEST(ExpositionTest, EscapesHelpAndSpellsNoNumber) {
  MetricRegistry registry("m");
  registry.OneGauge("helped", "A \\ and\na line.").Set(0);
  registry.OneGauge("nothing", "Not a number.").Set(std::nan(""));
  EXPECT_NE(Exposition(registry.registry.Collect()).find("nothing{model_name=\"m\"} NaN\n"),
            std::string::npos);
  EXPECT_NE(Exposition(registry.registry.Collect()).find("# HELP helped A \\\\ and\\na line.\n"),
            std::string::npos);
}

}  // namespace
}  // namespace quire

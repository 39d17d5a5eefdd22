// The whole server under seeded schedules (server_world.h). A failure prints its seed;
// --seed=N runs that program alone, --trace prints what happens in it, --steps=N runs programs
// until that many steps are done.
#include <gtest/gtest.h>

#include <fcntl.h>

#include <iostream>
#include <map>
#include <string>

#include "engine/base/log.h"
#include "tests/engine/schedule/random_steps.h"
#include "tests/simulation/server_world.h"

namespace quire {
namespace {

bool trace = false;

TEST(ServerSimulationTest, KeepsEveryPromiseInEveryWorld) {
  WorldReport sum;
  uint64_t seed = random_steps.only_seed != 0 ? random_steps.only_seed : 1;
  for (;; ++seed) {
    SCOPED_TRACE("replay with --seed=" + std::to_string(seed) + " --trace");
    const WorldReport report = RunServerWorld(seed, trace);
    sum.steps += report.steps;
    sum.actions += report.actions;
    sum.turns += report.turns;
    sum.switches += report.switches;
    sum.virtual_ns += report.virtual_ns;
    for (const auto& [name, count] : report.counts) sum.counts[name] += count;
    if (HasFailure() || random_steps.only_seed != 0 || sum.steps >= random_steps.steps) break;
  }
  std::cout << sum.steps << " steps, " << sum.actions << " actions, " << sum.turns
            << " turns checked, " << sum.switches << " switches, " << sum.virtual_ns / 1'000'000'000
            << " virtual seconds, last seed " << seed;
  for (const auto& [name, count] : sum.counts) std::cout << ", " << name << ": " << count;
  std::cout << "\n";
  if (HasFailure() || random_steps.only_seed != 0) return;
  // The programs reach the cases that they exist for.
  for (const char* name : {"deaths",
                           "lost steps",
                           "lost copies",
                           "preemptions",
                           "stored blocks",
                           "loaded blocks",
                           "failed copies",
                           "late copies",
                           "corrupt pages",
                           "fork",
                           "truncate",
                           "export",
                           "import",
                           "snapshot",
                           "close",
                           "flushes",
                           "clock jumps",
                           "EOS",
                           "STOP_TOKEN",
                           "MAX_TOKENS",
                           "CANCELLED",
                           "DEADLINE_EXCEEDED",
                           "RESOURCE_EXHAUSTED",
                           "UNAVAILABLE"}) {
    EXPECT_GT(sum.counts[name], 0) << name;
  }
}

TEST(ServerSimulationTest, RepeatsAWorldExactlyByItsSeed) {
  for (const uint64_t seed : {3, 4, 5}) {
    const WorldReport first = RunServerWorld(seed, false);
    const WorldReport second = RunServerWorld(seed, false);
    EXPECT_EQ(first.digest, second.digest) << "seed " << seed;
    EXPECT_EQ(first.switches, second.switches);
    EXPECT_EQ(first.virtual_ns, second.virtual_ns);
  }
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  quire::random_steps.steps = 100'000;
  quire::ReadRandomSteps(argc, argv);
  for (int i = 1; i < argc; ++i) quire::trace |= std::string(argv[i]) == "--trace";
  // Deaths of workers are logged at any rate here.
  quire::StartLog(quire::LogFormat::kText, quire::Severity::kError, open("/dev/null", O_WRONLY));
  quire::StopLog();
  return RUN_ALL_TESTS();
}

// The whole server under seeded schedules (server_world.h). A failure prints its seed;
// --seed=N runs that program alone, --trace prints what happens in it, --digests prints a line of
// each program that only an equal run repeats, --steps=N runs programs until that many steps are
// done, from --first-seed=N on.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <string>

#include "engine/base/log.h"
#include "tests/engine/schedule/random_steps.h"
#include "tests/simulation/server_world.h"

namespace quire {
namespace {

bool trace = false;
bool digests = false;
uint64_t first_seed = 1;

std::string DigestLine(uint64_t seed, const WorldReport& report) {
  return "seed " + std::to_string(seed) + ": digest " + std::to_string(report.digest) + ", " +
         std::to_string(report.steps) + " steps, " + std::to_string(report.switches) +
         " switches, " + std::to_string(report.virtual_ns) + " virtual ns\n";
}

// The lines that this program prints when another process runs it.
std::string OutputOfAnotherProcess(const std::string& flags) {
  const std::string command = "/proc/" + std::to_string(getpid()) + "/exe " + flags;
  FILE* const pipe = popen(command.c_str(), "re");
  std::string output;
  for (int letter = 0; (letter = fgetc(pipe)) != EOF;) output += static_cast<char>(letter);
  pclose(pipe);
  return output;
}

TEST(ServerSimulationTest, KeepsEveryPromiseInEveryWorld) {
  WorldReport sum;
  uint64_t seed = random_steps.only_seed != 0 ? random_steps.only_seed : first_seed;
  for (;; ++seed) {
    SCOPED_TRACE("replay with --seed=" + std::to_string(seed) + " --trace");
    const WorldReport report = RunServerWorld(seed, trace);
    if (digests) std::cout << DigestLine(seed, report) << std::flush;
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
    const std::string first = DigestLine(seed, RunServerWorld(seed, false));
    EXPECT_EQ(DigestLine(seed, RunServerWorld(seed, false)), first);
    const std::string others = OutputOfAnotherProcess(
        "--gtest_filter='*KeepsEveryPromise*' --digests --seed=" + std::to_string(seed));
    EXPECT_NE(others.find(first), std::string::npos) << first << others;
  }
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  quire::random_steps.steps = 100'000;
  quire::ReadRandomSteps(argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    quire::trace |= argument == "--trace";
    quire::digests |= argument == "--digests";
    if (argument.starts_with("--first-seed=")) quire::first_seed = std::stoull(argument.substr(13));
  }
  // Deaths of workers are logged at any rate here.
  quire::StartLog(quire::LogFormat::kText, quire::Severity::kError, open("/dev/null", O_WRONLY));
  quire::StopLog();
  return RUN_ALL_TESTS();
}

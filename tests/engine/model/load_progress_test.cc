// Progress lines of a load: one per second, none in the first second.
#include "engine/model/checkpoint/load_progress.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "engine/base/log.h"

namespace quire {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kGigabyte = 1'000'000'000;

TEST(LoadProgressTest, LogsAmountTotalAndSpeedOncePerSecond) {
  const int file = memfd_create("log", MFD_CLOEXEC);
  StartLog(LogFormat::kText, Severity::kInfo, file);
  const int64_t start_ns = 100 * kSecondNs;
  LoadProgress progress(16'100'000'000, start_ns);
  progress.Add(kGigabyte, start_ns + kSecondNs - 1);  // within the first second
  progress.Add(kGigabyte, start_ns + kSecondNs);
  progress.Add(kGigabyte, start_ns + 2 * kSecondNs - 1);
  progress.Add(kGigabyte * 12 / 10, start_ns + 2 * kSecondNs);
  StopLog();
  std::vector<std::string> lines;
  std::ifstream in("/proc/self/fd/" + std::to_string(file));
  for (std::string line; std::getline(in, line);) lines.push_back(line.substr(line.find("INFO")));
  close(file);
  EXPECT_EQ(lines,
            (std::vector<std::string>{
                "INFO loading weights gigabytes=2 of_gigabytes=16.1 gigabytes_per_second=2",
                "INFO loading weights gigabytes=4.2 of_gigabytes=16.1 gigabytes_per_second=2.1"}));
}

}  // namespace
}  // namespace quire

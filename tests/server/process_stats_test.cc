// Process statistics compared with other system calls.
#include "server/metrics/process/process_stats.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <vector>

namespace quire {
namespace {

int CountOpenDescriptors() {
  int count = 0;
  for (int fd = 0; fd < sysconf(_SC_OPEN_MAX) && fd < 4096; ++fd) {
    count += fcntl(fd, F_GETFD) >= 0;
  }
  return count;
}

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(ProcessStatsTest, CountsOpenDescriptorsExceptItsOwn) {
  EXPECT_EQ(ReadProcessStats().open_fds, CountOpenDescriptors());
  const int fd = open("/dev/null", O_RDONLY);
  EXPECT_EQ(ReadProcessStats().open_fds, CountOpenDescriptors());
  close(fd);
}

TEST(ProcessStatsTest, DescriptorLimitIsTheSoftLimit) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit lower{123, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &lower);
  EXPECT_EQ(ReadProcessStats().max_fds, 123);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(ProcessStatsTest, ProcessorTimeEqualsTheProcessClock) {
  volatile double sink = 0;
  while (CpuSeconds() < 0.1) sink = sink + 1;
  const double before = CpuSeconds();
  const double seconds = ReadProcessStats().cpu_seconds;
  // The kernel splits the time between user and system by whole ticks of at most 10 ms.
  EXPECT_GE(seconds, before - 0.02);
  EXPECT_LE(seconds, CpuSeconds() + 0.02);
}

TEST(ProcessStatsTest, ResidentMemoryGrowsWhenMemoryIsTouched) {
  const int64_t before = ReadProcessStats().resident_bytes;
  EXPECT_GT(before, 0);
  const std::vector<char> touched(64 << 20, 'x');
  EXPECT_GE(ReadProcessStats().resident_bytes - before, 60 << 20);
}

}  // namespace
}  // namespace quire

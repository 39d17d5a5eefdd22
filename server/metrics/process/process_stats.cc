// Reads /proc/self and the resource limits.
#include "server/metrics/process/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace quire {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  if (std::ifstream("/proc/self/statm") >> total_pages >> resident_pages) {
    stats.resident_bytes = resident_pages * sysconf(_SC_PAGESIZE);
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    stats.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  stats.open_fds = error ? 0 : -1;  // minus the open folder itself
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    ++stats.open_fds;
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  return stats;
}

}  // namespace quire

// Reads limits from the files of control groups. /proc/self/cgroup names a process's groups, one
// line a hierarchy: "number:controllers:/path". The line of version 2 has no controllers.
#include "kernels/cpu/host_limits.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <thread>
#include <vector>

namespace quire::cpu {
namespace {

// Calls visit(directory) for the group `path` of the hierarchy mounted at `mount` and for all its
// ancestors. A container may see its own group as the mount and not the path that it has outside:
// then only the mount exists.
template <typename Visit>
void EachGroup(const std::string& mount, std::string path, Visit visit) {
  for (; path.find_first_not_of('/') != std::string::npos; path.resize(path.rfind('/'))) {
    visit(mount + path);
  }
  visit(mount);
}

// The first two numbers of a file; -1 for "max" and for a missing number.
struct Numbers {
  double first = -1, second = -1;
};

Numbers ReadNumbers(const std::string& file) {
  std::ifstream in(file);
  Numbers numbers;
  if (!(in >> numbers.first)) return Numbers{};
  if (!(in >> numbers.second)) numbers.second = -1;
  return numbers;
}

void LimitCpus(CgroupLimits& limits, double quota_us, double period_us) {
  if (quota_us > 0 && period_us > 0) limits.cpus = std::min(limits.cpus, quota_us / period_us);
}

void LimitMemory(CgroupLimits& limits, double bytes) {
  constexpr double kUnlimited = 0x1p62;  // version 1 writes a number near 2^63
  if (bytes >= 0 && bytes < kUnlimited) {
    limits.memory = std::min(limits.memory, static_cast<size_t>(bytes));
  }
}

void ReadVersion2(CgroupLimits& limits, const std::string& group) {
  const Numbers cpu = ReadNumbers(group + "/cpu.max");
  LimitCpus(limits, cpu.first, cpu.second);
  LimitMemory(limits, ReadNumbers(group + "/memory.max").first);
}

void ReadVersion1(CgroupLimits& limits, const std::string& group) {
  LimitCpus(limits, ReadNumbers(group + "/cpu.cfs_quota_us").first,
            ReadNumbers(group + "/cpu.cfs_period_us").first);
  LimitMemory(limits, ReadNumbers(group + "/memory.limit_in_bytes").first);
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  CgroupLimits limits;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      const auto read = [&](const std::string& group) { ReadVersion2(limits, group); };
      EachGroup(mounts, path, read);
      EachGroup(mounts + "/unified", path, read);  // beside version 1
      continue;
    }
    // "cpu,cpuacct" may be mounted under that name, or under each.
    const auto read = [&](const std::string& group) { ReadVersion1(limits, group); };
    EachGroup(mounts + "/" + controllers, path, read);
    for (size_t begin = 0, end = 0; end < controllers.size(); begin = end + 1) {
      end = std::min(controllers.find(',', begin), controllers.size());
      const std::string controller = controllers.substr(begin, end - begin);
      if (controller == "cpu" || controller == "memory") {
        EachGroup(mounts + "/" + controller, path, read);
      }
    }
  }
  return limits;
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores = sched_getaffinity(0, sizeof(set), &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  const double quota = std::ceil(ReadCgroupLimits().cpus);
  return std::max(1, static_cast<int>(std::min<double>(cores, quota)));
}

int StartableThreads(int wanted) {
  std::atomic<bool> end{false};
  const auto wait = [](void* flag) -> void* {
    static_cast<std::atomic<bool>*>(flag)->wait(false);
    return nullptr;
  };
  std::vector<pthread_t> threads;
  threads.reserve(static_cast<size_t>(std::max(wanted, 0)));
  while (static_cast<int>(threads.size()) < wanted) {
    pthread_t thread{};
    // Not std::thread, which throws where the system refuses.
    if (pthread_create(&thread, nullptr, wait, &end) != 0) break;
    threads.push_back(thread);
  }
  end = true;
  end.notify_all();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  return static_cast<int>(threads.size());
}

size_t UsableMemory() {
  const size_t installed = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return std::min(installed, ReadCgroupLimits().memory);
}

}  // namespace quire::cpu

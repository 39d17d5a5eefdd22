// The cores and memory that this process may use. A container's share is often far less than the
// machine.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace quire::cpu {

// The limits of control groups (version 1 or 2) on a process.
struct CgroupLimits {
  double cpus = std::numeric_limits<double>::infinity();
  size_t memory = std::numeric_limits<size_t>::max();  // bytes

  bool operator==(const CgroupLimits&) const = default;
};

// The tightest limits of this process's groups and their ancestors, read from
// <root>/proc/self/cgroup and <root>/sys/fs/cgroup. A file that cannot be read does not limit.
CgroupLimits ReadCgroupLimits(const std::string& root = "");

// Threads that can run at once: the smaller of the affinity mask's cores and the group's quota of
// processor time, rounded up. At least 1.
int UsableCores();
// How many threads, at most `wanted`, the system lets this process start now. Limits lie in the
// user's processes (ulimit -u), control groups (pids.max) and address space (ulimit -v), and count
// threads of other processes too, so this starts that many and ends them again.
int StartableThreads(int wanted);
// Bytes: the smaller of the installed memory and the group's limit.
size_t UsableMemory();

}  // namespace quire::cpu

// What this process may use of the host: a container's share is often far less than the machine.
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

// The tightest limits of this process's own groups and of those around them, as
// <root>/proc/self/cgroup and <root>/sys/fs/cgroup tell; what cannot be read does not limit.
CgroupLimits ReadCgroupLimits(const std::string& root = "");

// The threads that can run at once: the cores of the affinity mask, or the group's quota of
// processor time, rounded up. At least 1.
int UsableCores();
// Bytes: the installed memory, or the group's limit.
size_t UsableMemory();

}  // namespace quire::cpu

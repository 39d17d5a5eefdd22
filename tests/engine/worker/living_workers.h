// The worker processes of a test.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace quire::testing {

// The living children of this process that run a program of their own: one that is stopped before
// would stop this process too, which waits for it in posix_spawn.
inline std::vector<pid_t> Workers() {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    // "pid (name) state parent ...", where the name may hold anything.
    std::istringstream rest(line.substr(line.rfind(')') + 1));
    char state = 0;
    pid_t parent = 0;
    rest >> state >> parent;
    if (parent != getpid() || state == 'Z') continue;
    std::error_code error;
    const auto program = std::filesystem::read_symlink(entry.path() / "exe", error);
    const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
    if (program != own) pids.push_back(std::stoi(line));
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

}  // namespace quire::testing

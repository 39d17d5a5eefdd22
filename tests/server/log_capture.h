// LogCapture: the process's log lines while it lives, for tests that read them.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "engine/base/log.h"

namespace quire {

// One at a time.
class LogCapture {
 public:
  LogCapture() { StartLog(LogFormat::kText, Severity::kInfo, file_); }
  ~LogCapture() {
    StopLog();
    StartLog(LogFormat::kText, Severity::kInfo);
    close(file_);
  }

  // The lines so far that contain `words`.
  std::vector<std::string> Lines(const std::string& words) const {
    std::vector<std::string> lines;
    std::ifstream in("/proc/self/fd/" + std::to_string(file_));
    for (std::string line; std::getline(in, line);) {
      if (line.find(words) != std::string::npos) lines.push_back(line);
    }
    return lines;
  }

 private:
  const int file_ = memfd_create("log", MFD_CLOEXEC);
};

}  // namespace quire

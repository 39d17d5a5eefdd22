// Statistics of this process, under the names that every Prometheus client library uses.
#pragma once

#include <cstdint>

namespace quire {

struct ProcessStats {
  int64_t resident_bytes = 0;
  double cpu_seconds = 0;  // user and system
  int open_fds = 0;
  int64_t max_fds = 0;
};

// Any thread. Values that cannot be read stay 0.
ProcessStats ReadProcessStats();

}  // namespace quire

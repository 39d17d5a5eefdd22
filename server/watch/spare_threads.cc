// Limits count the threads of other processes too, so they are tried rather than read.
#include "server/watch/spare_threads.h"

#include <string>

#include "kernels/cpu/host_limits.h"

namespace quire {
namespace {

// gRPC's pool of events grows by one thread a second, so one is for it until the next look. The
// others are for its executor, which grows with the calls that come at once: a guess.
constexpr int kSpareThreads = 8;

}  // namespace

absl::Status CheckSpareThreads() {
  const int startable = cpu::StartableThreads(kSpareThreads);
  if (startable == kSpareThreads) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "the system lets this process start " + std::to_string(startable) +
      " more threads, and gRPC may need " + std::to_string(kSpareThreads) +
      ": raise the limit (pids of the container, TasksMax of the unit, pids.max, ulimit -u, "
      "ulimit -v)");
}

}  // namespace quire

// The client's limits and the server's share.
#include "clients/load/health.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "absl/strings/str_format.h"

namespace quire::load {
namespace {

constexpr double kLagLimitSeconds = 1e-3;
constexpr double kCpuLimit = 0.8;
constexpr int32_t kDeadlineExceeded = 4;  // gRPC's status

// Time between the 5th and the 95th percentile of the sorted times.
double MiddleSeconds(std::vector<int64_t>& times) {
  std::sort(times.begin(), times.end());
  const size_t cut = times.size() / 20;
  return 1e-9 * static_cast<double>(times[times.size() - 1 - cut] - times[cut]);
}

}  // namespace

ProcessUse UsedSoFar() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss * int64_t{1024}};
}

int32_t CoresUsed() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int32_t cores =
      sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  const int32_t readers = std::clamp(cores / 2, 2, 16);  // as many as gRPC starts
  return std::min(cores, readers + 1);
}

double ServedShare(const RunRecord& run) {
  std::vector<int64_t> planned, ended;
  for (const RequestRecord& request : run.requests) {
    const bool served = request.outcome == Outcome::kOk || request.outcome == Outcome::kCancelled;
    const bool late = request.status_code == kDeadlineExceeded;
    if (request.warmup || request.sent_ns == 0 || request.turn > 0 || late) continue;
    planned.push_back(request.planned_ns);
    if (served) ended.push_back(request.end_ns);
  }
  if (planned.size() < kEnoughToJudge) return 1;
  if (ended.size() < kEnoughToJudge) {
    return static_cast<double>(ended.size()) / static_cast<double>(planned.size());
  }
  const double planned_seconds = MiddleSeconds(planned);
  const double ended_seconds = MiddleSeconds(ended);
  if (ended_seconds <= 0) return 1;
  const double ratio =
      static_cast<double>(ended.size()) / static_cast<double>(planned.size()) * planned_seconds;
  return std::min(1.0, ratio / ended_seconds);
}

ClientHealth JudgeClient(const LatencyHistogram& lags, double cpu_seconds, double wall_seconds,
                         int64_t peak_rss_bytes) {
  ClientHealth health;
  health.lag_p99_seconds = lags.Percentile(99);
  health.lag_max_seconds = lags.max();
  health.cpu_share = wall_seconds > 0 ? cpu_seconds / (wall_seconds * CoresUsed()) : 0;
  health.peak_rss_bytes = peak_rss_bytes;
  if (health.lag_p99_seconds >= kLagLimitSeconds) {
    health.invalid_because = absl::StrFormat(
        "the client was the bottleneck: one request in 100 was sent %.3g ms late or more, and 1 ms "
        "is the limit; give it a core that the server does not use, or ask for a lower rate",
        1e3 * health.lag_p99_seconds);
  } else if (health.cpu_share > kCpuLimit) {
    health.invalid_because = absl::StrFormat(
        "the client was the bottleneck: it used %.0f %% of the %d cores it can fill, and 80 %% is "
        "the limit; give it more cores, or run several clients",
        100 * health.cpu_share, CoresUsed());
  }
  return health;
}

}  // namespace quire::load

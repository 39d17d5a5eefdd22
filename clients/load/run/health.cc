// The client's limits and the server's share.
#include "clients/load/run/health.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/strings/str_format.h"

namespace quire::load {
namespace {

constexpr double kLagLimitSeconds = 1e-3;
constexpr double kEmptySlotLimit = 0.01;
constexpr double kCpuLimit = 0.8;
constexpr int32_t kDeadlineExceeded = 4;  // gRPC's status

// A request's arrival and its time from there to its end, in seconds.
struct Served {
  double planned = 0, took = 0;
};

// How much `took` grows with each second of `planned`, by least squares, less two standard errors
// of that; not below 0.
double SureGrowth(const std::vector<Served>& served) {
  const auto n = static_cast<double>(served.size());
  double x_mean = 0, y_mean = 0;
  for (const Served& s : served) {
    x_mean += s.planned / n;
    y_mean += s.took / n;
  }
  double xx = 0, xy = 0, yy = 0;
  for (const Served& s : served) {
    const double x = s.planned - x_mean, y = s.took - y_mean;
    xx += x * x;
    xy += x * y;
    yy += y * y;
  }
  if (xx <= 0) return 0;
  const double slope = xy / xx;
  const double residual = std::max(0.0, yy - slope * xy) / (n - 2);
  return std::max(0.0, slope - 2 * std::sqrt(residual / xx));
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
  size_t sent = 0;
  std::vector<Served> served;  // in order of arrival, as the record is
  for (const RequestRecord& request : run.requests) {
    const bool late = request.status_code == kDeadlineExceeded;
    if (request.warmup || request.sent_ns == 0 || request.turn > 0 || late) continue;
    ++sent;
    if (request.outcome != Outcome::kOk && request.outcome != Outcome::kCancelled) continue;
    served.push_back({1e-9 * static_cast<double>(request.planned_ns),
                      1e-9 * static_cast<double>(request.end_ns - request.planned_ns)});
  }
  if (sent < kEnoughToJudge) return 1;
  const double accepted = static_cast<double>(served.size()) / static_cast<double>(sent);
  if (served.size() < kEnoughToJudge) return accepted;
  served.erase(served.begin(), served.begin() + static_cast<ptrdiff_t>(served.size() / 5));
  return accepted / (1 + SureGrowth(served));
}

double LagLimit(const RunRecord& run, bool closed_loop) {
  if (!closed_loop) return kLagLimitSeconds;
  std::vector<int64_t> took_ns;
  for (const RequestRecord& request : run.requests) {
    if (request.warmup || request.outcome != Outcome::kOk) continue;
    took_ns.push_back(request.end_ns - request.sent_ns);
  }
  if (took_ns.empty()) return kLagLimitSeconds;
  const auto middle = took_ns.begin() + static_cast<ptrdiff_t>(took_ns.size() / 2);
  std::nth_element(took_ns.begin(), middle, took_ns.end());
  return std::max(kLagLimitSeconds, kEmptySlotLimit * 1e-9 * static_cast<double>(*middle));
}

ClientHealth JudgeClient(const LatencyHistogram& lags, double lag_limit, const ProcessUse& used,
                         double wall_seconds) {
  ClientHealth health;
  health.lag_p99_seconds = lags.Percentile(99);
  health.lag_max_seconds = lags.max();
  health.cpu_share = wall_seconds > 0 ? used.cpu_seconds / (wall_seconds * CoresUsed()) : 0;
  health.peak_rss_bytes = used.peak_rss_bytes;
  if (health.lag_p99_seconds >= lag_limit) {
    health.invalid_because = absl::StrFormat(
        "the client was the bottleneck: one request in 100 was sent %.3g ms late or more, and "
        "%.3g ms is the limit; give it a core that the server does not use, or ask for a lower "
        "rate",
        1e3 * health.lag_p99_seconds, 1e3 * lag_limit);
  } else if (health.cpu_share > kCpuLimit) {
    health.invalid_because = absl::StrFormat(
        "the client was the bottleneck: it used %.0f %% of the %d cores it can fill, and 80 %% is "
        "the limit; give it more cores, or run several clients",
        100 * health.cpu_share, CoresUsed());
  }
  return health;
}

}  // namespace quire::load

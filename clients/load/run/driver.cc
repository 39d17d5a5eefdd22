// From settings to a record, and from a sweep's rates to several.
#include "clients/load/run/driver.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "clients/load/figures/summary.h"
#include "clients/load/run/health.h"
#include "clients/load/run/load_run.h"
#include "clients/load/run/target.h"
#include "clients/load/workload/arrivals.h"
#include "clients/load/workload/workload.h"

namespace quire::load {
namespace {

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &utc);
  return text;
}

std::string FileName(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

RunInfo Describe(const Settings& settings, const Target& target) {
  const ArrivalSettings& arrival = settings.arrival;
  const WorkloadSettings& workload = settings.workload;
  const bool paced = arrival.ramp != Ramp::kNone || std::isfinite(arrival.request_rate);
  RunInfo info;
  info.date = UtcNow();
  info.target = settings.endpoint.server;
  info.model = target.model().name;
  info.server = target.description();
  info.workload = workload.name == "custom" && !workload.trace_file.empty()
                      ? FileName(workload.trace_file)
                      : workload.name;
  info.command_line = settings.command_line;
  info.arrival = workload.trace_file.empty() || paced || IsClosedLoop(arrival)
                     ? ArrivalName(arrival)
                     : "trace";
  info.request_rate = arrival.request_rate;
  info.burstiness = arrival.burstiness;
  info.max_concurrency = arrival.max_concurrency;
  info.seed = workload.seed;
  info.detailed = settings.detailed;
  info.conversations = HasConversations(workload);
  info.sessions = !workload.session_prefix.empty();
  info.limits = settings.limits;
  info.metadata = settings.metadata;
  return info;
}

// Connections for the largest possible number of streams.
int32_t ConnectionsOf(const Settings& settings, const Workload& workload) {
  if (settings.channels > 0) return settings.channels;
  int64_t streams = workload.size();
  if (settings.arrival.max_concurrency > 0) {
    streams = std::min<int64_t>(streams, settings.arrival.max_concurrency);
  }
  return ConnectionsFor(streams);
}

// True if p99 lies within the limits.
bool WithinLimits(const Summary& summary, const GoodputLimits& limits) {
  const auto p99 = [](const LatencyFigures& figures) {
    for (size_t i = 0; i < kPercentiles.size(); ++i) {
      if (kPercentiles[i] == 99) return figures.percentile[i];
    }
    return figures.max;
  };
  return (limits.ttft_ms <= 0 || p99(summary.ttft) <= limits.ttft_ms) &&
         (limits.tpot_ms <= 0 || p99(summary.tpot) <= limits.tpot_ms) &&
         (limits.e2e_ms <= 0 || p99(summary.e2e) <= limits.e2e_ms);
}

// The prefix of a run's session names, different in each run; empty if its conversations send their
// histories again.
absl::StatusOr<std::string> SessionPrefix(const Settings& settings, const Target& target) {
  if (settings.sessions == SessionUse::kOff || !HasConversations(settings.workload)) return "";
  if (target.KeepsSessions())
    return absl::StrFormat("load-%s-%08x-", UtcNow(), std::random_device()());
  if (settings.sessions == SessionUse::kAuto) return "";
  return absl::FailedPreconditionError(
      absl::StrCat("the server at ", settings.endpoint.server,
                   " keeps no sessions; with --sessions off histories are sent again"));
}

}  // namespace

absl::StatusOr<RunRecord> Run(const Settings& asked, std::stop_token stop, std::ostream* progress) {
  Settings settings = asked;
  auto target = Target::Connect(settings);
  if (!target.ok()) return target.status();
  auto prefix = SessionPrefix(settings, **target);
  if (!prefix.ok()) return prefix.status();
  settings.workload.session_prefix = *std::move(prefix);
  auto workload = Workload::Create(settings.workload, settings.arrival, (*target)->model());
  if (!workload.ok()) return workload.status();
  const absl::Status opened = (*target)->Open(ConnectionsOf(settings, **workload));
  if (!opened.ok()) return opened;
  RunInfo info = Describe(settings, **target);
  RunRecord run = LoadRun(settings, workload->get(), target->get()).Execute(stop, progress);
  run.info = std::move(info);
  const bool paced = std::isfinite(settings.arrival.request_rate);
  const double served = ServedShare(run);
  if (run.health.invalid_because.empty() && paced && settings.sweep_rates.empty() &&
      settings.arrival.ramp == Ramp::kNone && run.end == RunEnd::kCompleted &&
      served < kServedAtLeast) {
    run.health.invalid_because = absl::StrFormat(
        "the server saturated: it served %.0f %% of the %g requests/s it was offered, so that "
        "latencies grow with the length of the run; ask for a lower rate, or for --sweep",
        100 * served, settings.arrival.request_rate);
  }
  return run;
}

absl::StatusOr<std::vector<RunRecord>> RunSweep(const Settings& settings, std::stop_token stop,
                                                std::ostream* progress) {
  std::vector<RunRecord> runs;
  Settings point = settings;
  for (size_t i = 0;; ++i) {
    point.arrival.request_rate = i < settings.sweep_rates.size()
                                     ? settings.sweep_rates[i]
                                     : point.arrival.request_rate * settings.sweep_step;
    if (progress != nullptr && settings.progress != ProgressStyle::kNone) {
      *progress << absl::StrFormat("%g requests/s:", point.arrival.request_rate) << std::endl;
    }
    auto run = Run(point, stop, progress);
    if (!run.ok() && runs.empty()) return run.status();
    if (!run.ok()) {
      runs.back().end = RunEnd::kServerLost;
      runs.back().end_reason = std::string(run.status().message());
      return runs;
    }
    runs.push_back(*std::move(run));
    const RunRecord& last = runs.back();
    const bool saturated =
        ServedShare(last) < kServedAtLeast || !WithinLimits(Summarize(last), settings.limits);
    const bool judged = last.requests.size() >= kEnoughToJudge || i < settings.sweep_rates.size();
    if (saturated || !judged || last.end != RunEnd::kCompleted) return runs;
  }
}

}  // namespace quire::load

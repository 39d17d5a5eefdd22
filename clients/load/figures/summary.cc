// The figures of a run. Percentiles and deviations are numpy's: linear interpolation between order
// statistics, deviation of the population.
#include "clients/load/figures/summary.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace quire::load {
namespace {

constexpr double kMsPerSecond = 1e3;

// Divides, because a product with 1e-6 is inexact and would put a value on a limit beyond it.
double Ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }
double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// The time at which an answer was complete: its last tokens, or its status if it had none.
int64_t AnsweredNs(const RequestRecord& r) { return r.last_ns != 0 ? r.last_ns : r.end_ns; }

LatencyFigures FiguresOfGaps(const LatencyHistogram& seconds) {
  LatencyFigures f;
  f.count = seconds.count();
  f.mean = seconds.mean() * kMsPerSecond;
  f.median = seconds.Percentile(50) * kMsPerSecond;
  f.std = seconds.stddev() * kMsPerSecond;
  f.min = seconds.min() * kMsPerSecond;
  f.max = seconds.max() * kMsPerSecond;
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    f.percentile[i] = seconds.Percentile(kPercentiles[i]) * kMsPerSecond;
  }
  return f;
}

void SummarizeLatencies(const RunRecord& run, Summary* s) {
  std::vector<double> ttft, ttft_sched, tpot, e2e, e2e_sched, queue, lag;
  for (const RequestRecord& r : run.requests) {
    if (!Counts(r) || r.outcome != Outcome::kOk) continue;
    if (r.first_ns != 0) {
      ttft.push_back(TtftMs(r));
      ttft_sched.push_back(Ms(r.first_ns - r.planned_ns));
    }
    if (r.output_tokens > 1) tpot.push_back(TpotMs(r));
    e2e.push_back(E2eMs(r));
    e2e_sched.push_back(Ms(AnsweredNs(r) - r.planned_ns));
    queue.push_back(r.server.first_step * kMsPerSecond);
    lag.push_back(Ms(r.sent_ns - r.planned_ns));
  }
  s->mean_concurrency = 0;
  for (double ms : e2e) s->mean_concurrency += ms / kMsPerSecond;
  s->mean_concurrency = s->duration_seconds > 0 ? s->mean_concurrency / s->duration_seconds : 0;
  s->ttft = FiguresOf(std::move(ttft));
  s->ttft_sched = FiguresOf(std::move(ttft_sched));
  s->tpot = FiguresOf(std::move(tpot));
  s->e2e = FiguresOf(std::move(e2e));
  s->e2e_sched = FiguresOf(std::move(e2e_sched));
  s->queue = FiguresOf(std::move(queue));
  s->client_lag = FiguresOf(std::move(lag));
  s->itl = FiguresOfGaps(run.gaps);
  s->itl_per_token = FiguresOfGaps(run.gaps_per_token);
}

bool Meets(const RequestRecord& r, const GoodputLimits& limits) {
  const double ttft = r.first_ns != 0 ? TtftMs(r) : E2eMs(r);
  return (limits.ttft_ms <= 0 || ttft <= limits.ttft_ms) &&
         (limits.tpot_ms <= 0 || TpotMs(r) <= limits.tpot_ms) &&
         (limits.e2e_ms <= 0 || E2eMs(r) <= limits.e2e_ms);
}

void CountRequests(const RunRecord& run, Summary* s) {
  int32_t good = 0;
  int64_t first_arrival = 0, last_arrival = 0;
  for (const RequestRecord& r : run.requests) {
    s->broken_sequences += r.sequence_broken;
    if (!Counts(r)) continue;
    first_arrival = s->planned == 0 ? r.planned_ns : std::min(first_arrival, r.planned_ns);
    last_arrival = s->planned == 0 ? r.planned_ns : std::max(last_arrival, r.planned_ns);
    ++s->planned;
    s->failed += r.outcome == Outcome::kFailed;
    s->cancelled += r.outcome == Outcome::kCancelled;
    s->incomplete += r.outcome == Outcome::kIncomplete;
    s->received_tokens += r.output_tokens;
    if (r.outcome != Outcome::kOk) continue;
    ++s->completed;
    s->input_tokens += r.prompt_tokens;
    s->output_tokens += r.output_tokens;
    good += Meets(r, run.info.limits);
  }
  if (last_arrival > first_arrival) {
    s->offered_throughput = (s->planned - 1) / Seconds(last_arrival - first_arrival);
  }
  const double seconds = s->duration_seconds;
  if (run.info.limits.any()) s->goodput = seconds > 0 ? good / seconds : 0;
  if (seconds <= 0) return;
  s->request_throughput = s->completed / seconds;
  s->output_throughput = static_cast<double>(s->output_tokens) / seconds;
  s->received_throughput = static_cast<double>(s->received_tokens) / seconds;
  s->total_throughput = static_cast<double>(s->input_tokens + s->output_tokens) / seconds;
}

// Tokens of the requests that finished after the first tenth and up to the last tenth of all
// finish times, over the time between: neither the filling of the batch nor its draining counts.
// Requests that all end together, as one wave of equal lengths does, have no such stretch: the rate
// is then that of the whole run.
double SteadyThroughput(const RunRecord& run, double whole_run) {
  std::vector<double> finish_ns;
  for (const RequestRecord& r : run.requests) {
    if (Counts(r) && r.outcome == Outcome::kOk) {
      finish_ns.push_back(static_cast<double>(AnsweredNs(r)));
    }
  }
  constexpr double kShortestShare = 0.1;
  if (finish_ns.empty()) return 0;
  std::sort(finish_ns.begin(), finish_ns.end());
  const double from = PercentileOfSorted(finish_ns, 10), to = PercentileOfSorted(finish_ns, 90);
  if (to <= from || to - from < kShortestShare * static_cast<double>(run.duration_ns)) {
    return whole_run;
  }
  int64_t tokens = 0;
  for (const RequestRecord& r : run.requests) {
    const auto finish = static_cast<double>(AnsweredNs(r));
    if (Counts(r) && r.outcome == Outcome::kOk && finish > from && finish <= to) {
      tokens += r.output_tokens;
    }
  }
  return static_cast<double>(tokens) / ((to - from) / 1e9);
}

// The most requests between sent and end at once; an end frees its place before a send takes one.
int32_t PeakConcurrency(const RunRecord& run) {
  std::vector<std::pair<int64_t, int>> changes;
  for (const RequestRecord& r : run.requests) {
    if (!Counts(r) || r.outcome == Outcome::kPending) continue;
    changes.emplace_back(r.sent_ns, 1);
    if (r.end_ns != 0) changes.emplace_back(r.end_ns, -1);
  }
  std::sort(changes.begin(), changes.end());
  int32_t now = 0, peak = 0;
  for (const auto& [when, change] : changes) peak = std::max(peak, now += change);
  return peak;
}

double BestSecond(const RunRecord& run) {
  double best = 0, from = 0;
  for (const TimelinePoint& point : run.timeline) {
    // The last interval may be shorter than a second and a late one longer: a short one is divided
    // by a whole second.
    best = std::max(best, static_cast<double>(point.tokens) / std::max(1.0, point.seconds - from));
    from = point.seconds;
  }
  return best;
}

}  // namespace

LatencyFigures FiguresOf(std::vector<double> ms) {
  LatencyFigures f;
  if (ms.empty()) return f;
  std::sort(ms.begin(), ms.end());
  f.count = static_cast<int64_t>(ms.size());
  double sum = 0, squares = 0;
  for (double x : ms) sum += x;
  f.mean = sum / static_cast<double>(f.count);
  for (double x : ms) squares += (x - f.mean) * (x - f.mean);
  f.std = std::sqrt(squares / static_cast<double>(f.count));
  f.min = ms.front();
  f.max = ms.back();
  f.median = PercentileOfSorted(ms, 50);
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    f.percentile[i] = PercentileOfSorted(ms, kPercentiles[i]);
  }
  return f;
}

double PercentileOfSorted(const std::vector<double>& sorted, double percent) {
  const double position = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto rank = static_cast<size_t>(position);
  if (rank + 1 >= sorted.size()) return sorted.back();
  return sorted[rank] + (position - static_cast<double>(rank)) * (sorted[rank + 1] - sorted[rank]);
}

bool Counts(const RequestRecord& request) { return !request.warmup && !request.slow_reader; }

double TtftMs(const RequestRecord& r) { return r.first_ns == 0 ? 0 : Ms(r.first_ns - r.sent_ns); }

double TpotMs(const RequestRecord& r) {
  return r.output_tokens > 1 ? Ms(r.last_ns - r.first_ns) / (r.output_tokens - 1) : 0;
}

double E2eMs(const RequestRecord& r) { return Ms(AnsweredNs(r) - r.sent_ns); }

Summary Summarize(const RunRecord& run) {
  Summary s;
  s.duration_seconds = Seconds(run.duration_ns);
  CountRequests(run, &s);
  SummarizeLatencies(run, &s);
  s.steady_output_throughput = SteadyThroughput(run, s.output_throughput);
  s.peak_output_tokens_per_second = BestSecond(run);
  s.peak_concurrency = PeakConcurrency(run);
  return s;
}

}  // namespace quire::load

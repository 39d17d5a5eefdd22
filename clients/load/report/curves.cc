// Distributions and time series out of run records.
#include "clients/load/report/curves.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire::load {
namespace {

// Mean of the values that are not NaN; NaN if all are.
class MeanOfFinite {
 public:
  void Add(double value) {
    if (!std::isfinite(value)) return;
    sum_ += value;
    ++count_;
  }
  double value() const {
    return count_ > 0 ? sum_ / count_ : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  double sum_ = 0;
  int count_ = 0;
};

std::vector<double> SortedMs(const RunRecord& run, Latency latency) {
  std::vector<double> ms;
  for (const RequestRecord& r : run.requests) {
    if (!Counts(r) || r.outcome != Outcome::kOk) continue;
    if (latency == Latency::kTtft && r.first_ns != 0) ms.push_back(TtftMs(r));
    if (latency == Latency::kTpot && r.output_tokens > 1) ms.push_back(TpotMs(r));
    if (latency == Latency::kE2e) ms.push_back(E2eMs(r));
  }
  std::sort(ms.begin(), ms.end());
  return ms;
}

Stretch StretchOf(const std::vector<TimelinePoint>& timeline, size_t begin, size_t end) {
  Stretch stretch;
  const double from = begin == 0 ? 0 : timeline[begin - 1].seconds;
  MeanOfFinite in_flight, kv, running, waiting;
  for (size_t i = begin; i < end; ++i) {
    const TimelinePoint& point = timeline[i];
    stretch.tokens_per_second += static_cast<double>(point.tokens);
    stretch.sent_per_second += point.sent;
    stretch.finished_per_second += point.finished;
    stretch.failed_per_second += point.failed;
    in_flight.Add(point.in_flight);
    kv.Add(point.kv_usage * 100);
    running.Add(point.running);
    waiting.Add(point.waiting);
  }
  stretch.length = timeline[end - 1].seconds - from;
  stretch.seconds = from + stretch.length / 2;
  for (double* count : {&stretch.tokens_per_second, &stretch.sent_per_second,
                        &stretch.finished_per_second, &stretch.failed_per_second}) {
    *count = stretch.length > 0 ? *count / stretch.length : 0;
  }
  stretch.requests_in_flight = in_flight.value();
  stretch.kv_percent = kv.value();
  stretch.running = running.value();
  stretch.waiting = waiting.value();
  return stretch;
}

double TokensHeld(const RequestRecord& r, double ns) {
  if (r.first_ns == 0 || ns < static_cast<double>(r.first_ns)) return r.prompt_tokens;
  const auto span = static_cast<double>(r.last_ns - r.first_ns);
  const double share = span > 0 ? (ns - static_cast<double>(r.first_ns)) / span : 1;
  return r.prompt_tokens + r.output_tokens * std::min(share, 1.0);
}

void AddTokensInFlight(const RunRecord& run, std::vector<Stretch>* stretches) {
  for (const RequestRecord& r : run.requests) {
    if (r.outcome == Outcome::kPending) continue;
    const double sent = static_cast<double>(r.sent_ns) / 1e9;
    const double end = r.end_ns != 0 ? static_cast<double>(r.end_ns) / 1e9
                                     : std::numeric_limits<double>::infinity();
    auto at = std::lower_bound(stretches->begin(), stretches->end(), sent,
                               [](const Stretch& s, double t) { return s.seconds < t; });
    for (; at != stretches->end() && at->seconds < end; ++at) {
      at->tokens_in_flight += TokensHeld(r, at->seconds * 1e9);
    }
  }
}

}  // namespace

Curve Distribution(const RunRecord& run, Latency latency) {
  const std::vector<double> ms = SortedMs(run, latency);
  const bool gaps = latency == Latency::kItl;
  if (gaps ? run.gaps.count() == 0 : ms.empty()) return {};
  Curve curve;
  const auto add = [&](double percent) {
    curve.emplace_back(gaps ? run.gaps.Percentile(percent) * 1e3 : PercentileOfSorted(ms, percent),
                       percent);
  };
  for (int i = 0; i < 198; ++i) add(i * 0.5);
  for (int i = 0; i <= 10; ++i) add(99 + i * 0.1);
  return curve;
}

std::vector<Stretch> Stretches(const RunRecord& run, int most) {
  const std::vector<TimelinePoint>& timeline = run.timeline;
  std::vector<Stretch> stretches;
  if (timeline.empty()) return stretches;
  const double width = std::max(1.0, std::ceil(timeline.back().seconds / most));
  size_t begin = 0;
  for (size_t i = 0; i < timeline.size(); ++i) {
    const double from = begin == 0 ? 0 : timeline[begin - 1].seconds;
    // A remainder at the end belongs to the stretch before if it is less than half of one.
    const double left = timeline.back().seconds - timeline[i].seconds;
    const bool last = i + 1 == timeline.size();
    const bool full = timeline[i].seconds - from >= width * 0.999 && left >= width / 2;
    if (!last && !full) continue;
    stretches.push_back(StretchOf(timeline, begin, i + 1));
    begin = i + 1;
  }
  AddTokensInFlight(run, &stretches);
  return stretches;
}

}  // namespace quire::load

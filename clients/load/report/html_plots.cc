// The plots of a report, and the description of each for readers who cannot see it.
#include "clients/load/report/html_plots.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "clients/load/report/curves.h"
#include "clients/load/report/html_text.h"
#include "clients/load/report/svg_plot.h"

namespace quire::load {
namespace {

constexpr size_t kMaxCurves = 6;  // more shades could not be told apart
constexpr int kFineStretches = 120, kCoarseStretches = 30;
constexpr char kBlue[] = "var(--blue)", kOrange[] = "var(--orange)", kPurple[] = "var(--purple)";

struct LatencyPlot {
  Latency latency;
  const char* title;
  const char* of;  // "request" or "gap": a value's owner
  const LatencyFigures Summary::*figures;
  double GoodputLimits::*limit;  // null: none
};

constexpr LatencyPlot kLatencyPlots[] = {
    {Latency::kTtft, "Time to first token", "requests", &Summary::ttft, &GoodputLimits::ttft_ms},
    {Latency::kTpot, "Time per output token", "requests", &Summary::tpot, &GoodputLimits::tpot_ms},
    {Latency::kItl, "Inter-token latency", "gaps", &Summary::itl, nullptr},
    {Latency::kE2e, "End-to-end latency", "requests", &Summary::e2e, &GoodputLimits::e2e_ms},
};

// The runs of a sweep that have a curve: all, or six spread evenly with the first and the last.
std::vector<size_t> Chosen(size_t count) {
  std::vector<size_t> chosen;
  const size_t curves = std::min(count, kMaxCurves);
  for (size_t i = 0; i < curves; ++i) {
    chosen.push_back(curves == 1 ? 0 : (i * (count - 1) + (curves - 1) / 2) / (curves - 1));
  }
  return chosen;
}

// A shade for the i-th of `count` curves, from the first to the last of the six.
std::string Shade(size_t i, size_t count) {
  return absl::StrCat("var(--s", count < 2 ? 3 : i * (kMaxCurves - 1) / (count - 1), ")");
}

// More than a decade between the least and the greatest would press most values into a corner.
bool WantsLog(double least, double greatest) { return least > 0 && greatest > 10 * least; }

void AddMarks(const LatencyFigures& figures, const TimeUnit& unit, Plot* plot) {
  plot->description = absl::StrCat("Median ", Duration(figures.median));
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    const double p = kPercentiles[i], ms = figures.percentile[i];
    if (p != 50 && p != 99) continue;
    plot->marks.push_back({ms * unit.per_ms, p, absl::StrCat("p", p, " ", Duration(ms))});
    if (p != 50) absl::StrAppend(&plot->description, ", ", p, " % below ", Duration(ms));
  }
  absl::StrAppend(&plot->description, ", greatest ", Duration(figures.max), ".");
}

// The beginning of a log axis: a stray smallest value, or tokens that came at once, would stretch
// it over decades with nothing in them.
double LowEnd(const Curve& distribution) {
  for (const auto& [ms, percent] : distribution) {
    if (percent >= 1 && ms > 0) return ms;
  }
  return distribution.front().first;
}

std::string LatencyFigure(const LatencyPlot& what, const std::vector<RunRecord>& runs,
                          const std::vector<Summary>& summaries) {
  const std::vector<size_t> chosen = Chosen(runs.size());
  double least = std::numeric_limits<double>::infinity(), greatest = 0;
  std::vector<Curve> curves;
  for (size_t i : chosen) {
    curves.push_back(Distribution(runs[i], what.latency));
    if (curves.back().empty()) continue;
    least = std::min(least, LowEnd(curves.back()));
    greatest = std::max(greatest, curves.back().back().first);
  }
  const TimeUnit unit = UnitFor(greatest);
  Plot plot{.title = what.title};
  const bool log = WantsLog(least, greatest);
  plot.x = {.label = absl::StrCat(unit.name, log ? " (log scale)" : ""), .log = log};
  if (log) plot.x.low = least * unit.per_ms;
  plot.y = {.label = absl::StrCat("% of ", what.of), .low = 0, .high = 100};
  for (size_t i = 0; i < chosen.size(); ++i) {
    for (auto& point : curves[i]) point.first *= unit.per_ms;
    plot.series.push_back({.name = PointName(runs[chosen[i]].info),
                           .color = runs.size() == 1 ? kBlue : Shade(i, chosen.size()),
                           .points = std::move(curves[i])});
  }
  const Summary& last = summaries[chosen.back()];
  if (runs.size() == 1 && (last.*what.figures).count > 0) AddMarks(last.*what.figures, unit, &plot);
  if (runs.size() > 1) plot.description = "A curve for each offered load; see the table of points.";
  const GoodputLimits& limits = runs[0].info.limits;
  if (what.limit != nullptr && limits.*what.limit > 0) {
    plot.limits.push_back({limits.*what.limit * unit.per_ms, true,
                           absl::StrCat("limit ", Duration(limits.*what.limit))});
  }
  return Figure(plot);
}

Series Over(const std::vector<Stretch>& stretches, double Stretch::*what, const char* name,
            const char* color) {
  Series series{.name = name, .color = color};
  for (const Stretch& s : stretches) series.points.emplace_back(s.seconds, s.*what);
  return series;
}

struct Reach {
  double least = std::numeric_limits<double>::infinity(), greatest = 0, mean = 0;
};

Reach ReachOf(const Series& series) {
  Reach reach;
  int count = 0;
  for (const auto& [x, y] : series.points) {
    if (!std::isfinite(y)) continue;
    reach.least = std::min(reach.least, y);
    reach.greatest = std::max(reach.greatest, y);
    reach.mean += y;
    ++count;
  }
  if (count > 0) reach.mean /= count;
  return reach;
}

std::string Described(const std::vector<Series>& series) {
  std::string text;
  for (const Series& each : series) {
    const Reach reach = ReachOf(each);
    if (!std::isfinite(reach.least)) continue;
    absl::StrAppend(&text, each.name, ": mean ", Readable(reach.mean), ", from ",
                    Readable(reach.least), " to ", Readable(reach.greatest), ". ");
  }
  return text;
}

bool AnyFinite(const Series& series) {
  return std::any_of(series.points.begin(), series.points.end(),
                     [](const auto& point) { return std::isfinite(point.second); });
}

std::string TimeFigure(const char* title, const char* unit, double end_seconds,
                       std::vector<Series> series) {
  Plot plot{.title = title, .wide = true};
  plot.description = Described(series);
  plot.x = {.label = "time since the start of the run, s", .low = 0, .high = end_seconds};
  plot.y = {.label = unit, .from_zero = true};
  plot.series = std::move(series);
  return Figure(plot);
}

// Arrivals are counts of a few a second, so that only wider stretches show more than their chance.
std::vector<Series> RequestRates(const RunRecord& run) {
  const std::vector<Stretch> s = Stretches(run, kCoarseStretches);
  std::vector<Series> rates = {Over(s, &Stretch::sent_per_second, "sent", kBlue),
                               Over(s, &Stretch::finished_per_second, "finished", kOrange)};
  rates[0].dashed = true;
  Series failed = Over(s, &Stretch::failed_per_second, "failed", kPurple);
  if (ReachOf(failed).greatest > 0) rates.push_back(std::move(failed));
  return rates;
}

// A run's place on the axis of a sweep: its rate, or its number of slots; NaN if it has neither.
double OfferedRate(const RunInfo& info) {
  return std::isfinite(info.request_rate) && info.request_rate > 0
             ? info.request_rate
             : std::numeric_limits<double>::quiet_NaN();
}
double Slots(const RunInfo& info) {
  return info.max_concurrency > 0 ? info.max_concurrency : std::numeric_limits<double>::quiet_NaN();
}

struct Sweep {
  std::vector<std::pair<double, size_t>> places;  // on the axis, and which run; rising
  Axis axis;
  bool rates = true;
};

Sweep SweepOf(const std::vector<RunRecord>& runs) {
  Sweep sweep;
  for (const auto place : {OfferedRate, Slots}) {
    sweep.places.clear();
    for (size_t i = 0; i < runs.size(); ++i) {
      const double at = place(runs[i].info);
      if (std::isfinite(at)) sweep.places.emplace_back(at, i);
    }
    sweep.rates = place == OfferedRate;
    if (sweep.places.size() > 1) break;
  }
  std::sort(sweep.places.begin(), sweep.places.end());
  if (sweep.places.empty()) return sweep;
  // Rates are compared with each other and with the finished requests, best on even axes.
  const bool log = sweep.places.back().first > 50 * sweep.places.front().first;
  sweep.axis = {.label = absl::StrCat(sweep.rates ? "offered, requests/s" : "requests at once",
                                      log ? " (log scale)" : ""),
                .log = log,
                .from_zero = !log};
  return sweep;
}

template <typename Value>
Series AlongSweep(const Sweep& sweep, const char* name, const char* color, Value value) {
  Series series{.name = name, .color = color, .dots = true};
  for (const auto& [at, run] : sweep.places) series.points.emplace_back(at, value(run));
  return series;
}

std::string RequestsOverSweep(const Sweep& sweep, const std::vector<Summary>& summaries) {
  Plot plot{.title = "Requests completed", .x = sweep.axis};
  plot.y = {.label = "requests/s", .from_zero = true};
  plot.series.push_back(AlongSweep(sweep, "throughput", kBlue,
                                   [&](size_t i) { return summaries[i].request_throughput; }));
  const bool goodput = std::any_of(summaries.begin(), summaries.end(),
                                   [](const Summary& s) { return s.goodput >= 0; });
  if (goodput) {
    plot.title = "Goodput and throughput";
    plot.series.push_back(AlongSweep(sweep, "goodput (within every limit)", kOrange,
                                     [&](size_t i) { return summaries[i].goodput; }));
  }
  plot.description = Described(plot.series);
  if (sweep.rates) {
    Series ideal{.name = "as offered", .color = "var(--soft)", .dashed = true};
    for (const auto& place : sweep.places) ideal.points.emplace_back(place.first, place.first);
    plot.series.push_back(std::move(ideal));
  }
  return Figure(plot);
}

std::string TokensOverSweep(const Sweep& sweep, const std::vector<Summary>& summaries) {
  Plot plot{.title = "Output throughput", .x = sweep.axis};
  plot.y = {.label = "tokens/s", .from_zero = true};
  plot.series.push_back(AlongSweep(sweep, "output tokens/s", kBlue,
                                   [&](size_t i) { return summaries[i].output_throughput; }));
  plot.description = Described(plot.series);
  return Figure(plot);
}

std::string TailOverSweep(const Sweep& sweep, const LatencyPlot& what,
                          const std::vector<Summary>& summaries, const GoodputLimits& limits) {
  const auto at = [&](size_t percentile) {
    return [&summaries, &what, percentile](size_t i) {
      const LatencyFigures& f = summaries[i].*what.figures;
      return f.count > 0 ? f.percentile[percentile] : std::numeric_limits<double>::quiet_NaN();
    };
  };
  static_assert(kPercentiles[0] == 50 && kPercentiles[4] == 99);
  Plot plot{.title = what.title, .x = sweep.axis};
  plot.series.push_back(AlongSweep(sweep, "p99", kOrange, at(4)));
  plot.series.push_back(AlongSweep(sweep, "p50", kBlue, at(0)));
  plot.description = Described(plot.series);
  const double greatest = ReachOf(plot.series[0]).greatest, least = ReachOf(plot.series[1]).least;
  const TimeUnit unit = UnitFor(greatest);
  for (Series& series : plot.series) {
    for (auto& point : series.points) point.second *= unit.per_ms;
  }
  const bool log = WantsLog(least, greatest);
  plot.y = {
      .label = absl::StrCat(unit.name, log ? " (log scale)" : ""), .log = log, .from_zero = !log};
  if (what.limit != nullptr && limits.*what.limit > 0) {
    plot.limits.push_back({limits.*what.limit * unit.per_ms, false,
                           absl::StrCat("limit ", Duration(limits.*what.limit))});
  }
  return Figure(plot);
}

}  // namespace

std::string PointName(const RunInfo& info) {
  if (std::isfinite(OfferedRate(info))) {
    return absl::StrCat(Readable(info.request_rate), " req/s");
  }
  if (info.max_concurrency > 0) return absl::StrCat(info.max_concurrency, " at once");
  return "all at once";
}

std::string LatencyPlots(const std::vector<RunRecord>& runs,
                         const std::vector<Summary>& summaries) {
  std::string out = "<div class=\"plots\">\n";
  for (const LatencyPlot& what : kLatencyPlots) out += LatencyFigure(what, runs, summaries);
  return out + "</div>\n";
}

std::string TimePlots(const RunRecord& run) {
  const std::vector<Stretch> s = Stretches(run, kFineStretches);
  if (s.empty()) return "";
  const double end = s.back().seconds + s.back().length / 2;
  std::string out = absl::StrCat(
      "<div class=\"plots\">\n",
      TimeFigure("Tokens received", "tokens/s", end,
                 {Over(s, &Stretch::tokens_per_second, "tokens/s", kBlue)}),
      TimeFigure("Requests", "requests/s", end, RequestRates(run)),
      TimeFigure("Requests in flight", "requests, seen by the client", end,
                 {Over(s, &Stretch::requests_in_flight, "in flight", kBlue)}),
      TimeFigure("Tokens in flight", "prompt and output tokens of the requests in flight", end,
                 {Over(s, &Stretch::tokens_in_flight, "tokens", kBlue)}));
  std::vector<Series> server = {Over(s, &Stretch::running, "running", kBlue),
                                Over(s, &Stretch::waiting, "waiting", kOrange)};
  server[1].dashed = true;
  if (AnyFinite(server[0]) || AnyFinite(server[1])) {
    out +=
        TimeFigure("Requests in the server", "requests, from its metrics", end, std::move(server));
  }
  Series kv = Over(s, &Stretch::kv_percent, "KV cache in use", kBlue);
  if (AnyFinite(kv)) {
    out += TimeFigure("KV cache in use", "% of its blocks, from the server’s metrics", end, {kv});
  }
  return out + "</div>\n";
}

std::string SweepPlots(const std::vector<RunRecord>& runs, const std::vector<Summary>& summaries) {
  const Sweep sweep = SweepOf(runs);
  if (sweep.places.size() < 2) return "";
  const GoodputLimits& limits = runs[0].info.limits;
  return absl::StrCat("<div class=\"plots\">\n", RequestsOverSweep(sweep, summaries),
                      TokensOverSweep(sweep, summaries),
                      TailOverSweep(sweep, kLatencyPlots[0], summaries, limits),
                      TailOverSweep(sweep, kLatencyPlots[1], summaries, limits), "</div>\n");
}

}  // namespace quire::load

// A run in the layout of MLPerf LoadGen's summary and detail logs, for scripts that read them.
//
// The figures are ours: percentiles interpolate where LoadGen takes the next sample, rates divide
// by the run's duration. Neither file is a result of MLPerf, and both say so first.
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/load/figures/verdict.h"
#include "clients/load/report/reports.h"
#include "version/build_facts.h"

namespace quire::load {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMinDurationMs = 600000;  // LoadGen's minimum for a run
constexpr int64_t kMinQueries = 100;
constexpr int kMaxErrorLines = 100;
constexpr char kUnofficial[] =
    "unofficial = true\n"
    "Written by quire-load in the layout of LoadGen; no result of MLPerf, not for submission.\n";

int64_t Ns(double ms) { return std::llround(ms * 1e6); }

std::string Heading(const char* title) {
  const std::string rule(48, '=');
  return absl::StrCat(rule, "\n", title, "\n", rule, "\n");
}

// A closed loop has no place among LoadGen's scenarios unless it has one slot; a larger one is
// nearest to Offline, which also keeps the server full.
enum class Scenario { kSingleStream, kServer, kOffline };

Scenario ScenarioOf(const RunInfo& info) {
  if (std::isfinite(info.request_rate)) return Scenario::kServer;
  return info.max_concurrency == 1 ? Scenario::kSingleStream : Scenario::kOffline;
}

const char* NameOf(Scenario scenario) {
  switch (scenario) {
    case Scenario::kSingleStream: return "SingleStream";
    case Scenario::kServer: return "Server";
    case Scenario::kOffline: return "Offline";
  }
  return "";
}

struct Checks {
  Scenario scenario;
  bool ttft_met, tpot_met, duration_met, queries_met;
  std::vector<std::string> recommendations;
  bool constraints_met() const { return ttft_met && tpot_met; }
  bool valid() const { return recommendations.empty(); }
};

double P99(const LatencyFigures& figures) { return figures.percentile[4]; }
static_assert(kPercentiles[4] == 99);

int NumErrors(const Summary& s) { return s.failed + s.incomplete; }

Checks Check(const RunRecord& run, const Summary& s) {
  const GoodputLimits& limits = run.info.limits;
  Checks c{.scenario = ScenarioOf(run.info)};
  const bool server = c.scenario == Scenario::kServer;
  c.ttft_met = !server || limits.ttft_ms <= 0 || P99(s.ttft_sched) <= limits.ttft_ms;
  c.tpot_met = !server || limits.tpot_ms <= 0 || P99(s.tpot) <= limits.tpot_ms;
  c.duration_met = s.duration_seconds * 1e3 >= kMinDurationMs;
  c.queries_met = s.completed >= kMinQueries;
  for (const std::string& reason : Judge(run, s).reasons) c.recommendations.push_back(reason);
  if (!c.ttft_met) c.recommendations.push_back("The 99th percentile of TTFT is above its limit.");
  if (!c.tpot_met) c.recommendations.push_back("The 99th percentile of TPOT is above its limit.");
  if (!c.duration_met) c.recommendations.push_back("The run was shorter than the minimum.");
  if (!c.queries_met) c.recommendations.push_back("Fewer queries completed than the minimum.");
  if (NumErrors(s) > 0) c.recommendations.push_back("Not every request succeeded.");
  return c;
}

std::string PercentileLines(const LatencyFigures& figures, const char* label) {
  std::string text;
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    absl::StrAppend(&text, absl::StrFormat("%.2f percentile %s (ns)   : %d\n", kPercentiles[i],
                                           label, Ns(figures.percentile[i])));
  }
  return text;
}

std::string Results(const RunRecord& run, const Summary& s, const Checks& c) {
  std::string text =
      absl::StrCat("SUT name : ", run.info.server, "\nScenario : ", NameOf(c.scenario),
                   "\nMode     : PerformanceOnly\n");
  const auto line = [&](const char* label, double value) {
    absl::StrAppend(&text, absl::StrFormat("%s%.2f\n", label, value));
  };
  switch (c.scenario) {
    case Scenario::kSingleStream:
      absl::StrAppend(&text, "90th percentile latency (ns) : ", Ns(s.e2e_sched.percentile[1]),
                      "\n99th first token percentile latency (ns) : ", Ns(P99(s.ttft_sched)), "\n");
      break;
    case Scenario::kServer:
      line("Completed samples per second    : ", s.request_throughput);
      line("Completed tokens per second: ", s.output_throughput);
      break;
    case Scenario::kOffline:
      line("Samples per second: ", s.request_throughput);
      line("Tokens per second: ", s.output_throughput);
      break;
  }
  const auto satisfied = [&](const char* what, bool yes) {
    absl::StrAppend(&text, "  ", what, " satisfied : ", yes ? "Yes" : "NO", "\n");
  };
  absl::StrAppend(&text, "Result is : ", c.valid() ? "VALID" : "INVALID", "\n");
  if (c.scenario == Scenario::kServer) {
    satisfied("Performance constraints", c.constraints_met());
  }
  satisfied("Min duration", c.duration_met);
  satisfied("Min queries", c.queries_met);
  if (!c.valid()) text += "Recommendations:\n";
  for (const std::string& each : c.recommendations) absl::StrAppend(&text, " * ", each, "\n");
  return text;
}

std::string AdditionalStats(const Summary& s, const Checks& c) {
  std::string text;
  if (c.scenario == Scenario::kServer) {
    text = absl::StrFormat("Scheduled samples per second : %.2f\n", s.offered_throughput);
  }
  absl::StrAppend(&text, "Min latency (ns)                : ", Ns(s.e2e_sched.min),
                  "\nMax latency (ns)                : ", Ns(s.e2e_sched.max),
                  "\nMean latency (ns)               : ", Ns(s.e2e_sched.mean), "\n",
                  PercentileLines(s.e2e_sched, "latency"), "\n");
  if (c.scenario == Scenario::kServer) {
    absl::StrAppend(&text, absl::StrFormat("Completed tokens per second                 : %.2f\n",
                                           s.output_throughput));
  }
  return absl::StrCat(text, "Min First Token latency (ns)                : ", Ns(s.ttft_sched.min),
                      "\nMax First Token latency (ns)                : ", Ns(s.ttft_sched.max),
                      "\nMean First Token latency (ns)               : ", Ns(s.ttft_sched.mean),
                      "\n", PercentileLines(s.ttft_sched, "first token latency"),
                      "\nMin Time to Output Token (ns)                : ", Ns(s.tpot.min),
                      "\nMax Time to Output Token (ns)                : ", Ns(s.tpot.max),
                      "\nMean Time to Output Token (ns)               : ", Ns(s.tpot.mean), "\n",
                      PercentileLines(s.tpot, "time to output token"));
}

// One seed makes both the schedule and the prompts here.
std::string Parameters(const RunInfo& info) {
  const double qps = std::isfinite(info.request_rate) ? info.request_rate : 0;
  return absl::StrCat(
      "samples_per_query : 1\ntarget_qps : ", qps, "\nttft_latency (ns): ", Ns(info.limits.ttft_ms),
      "\ntpot_latency (ns): ", Ns(info.limits.tpot_ms),
      "\nmax_async_queries : ", info.max_concurrency, "\nmin_duration (ms): ", kMinDurationMs,
      "\nmax_duration (ms): 0\nmin_query_count : ", kMinQueries,
      "\nmax_query_count : 0\nqsl_rng_seed : ", info.seed, "\nsample_index_rng_seed : ", info.seed,
      "\nschedule_rng_seed : ", info.seed, "\n");
}

// Lines of the detail log.
class Detail {
 public:
  explicit Detail(const RunRecord& run) : end_ms_(static_cast<double>(run.duration_ns) / 1e6) {}

  void Setting(int line, const std::string& key, const Json& value) { Add({line, 0}, key, value); }
  void Result(int line, const std::string& key, const Json& value) {
    Add({line, end_ms_}, key, value);
  }
  void Error(int line, double time_ms, const std::string& sentence) {
    Add({line, time_ms, true}, "error_request", sentence);
  }
  std::string text() const { return text_; }

 private:
  struct Where {
    int line;
    double time_ms;
    bool is_error = false;
  };
  void Add(const Where& where, const std::string& key, const Json& value) {
    Json j;
    j["key"] = key;
    j["value"] = value;
    j["time_ms"] = where.time_ms;
    j["namespace"] = "mlperf::logging";
    j["event_type"] = "POINT_IN_TIME";
    j["metadata"] = {
        {"is_error", where.is_error}, {"is_warning", false}, {"file", "report_loadgen.cc"},
        {"line_no", where.line},      {"pid", getpid()},     {"tid", getpid()}};
    absl::StrAppend(&text_, ":::MLLOG ", j.dump(-1, ' ', false, Json::error_handler_t::replace),
                    "\n");
  }

  const double end_ms_;
  std::string text_;
};

void AddSettings(const RunRecord& run, const Checks& c, Detail* d) {
  const RunInfo& info = run.info;
  const double qps = std::isfinite(info.request_rate) ? info.request_rate : 0;
  d->Setting(__LINE__, "unofficial", true);
  d->Setting(__LINE__, "written_by", std::string("quire-load ") + ThisBuild().version);
  d->Setting(__LINE__, "sut_name", info.server);
  for (const std::string stage : {"requested", "effective"}) {
    d->Setting(__LINE__, stage + "_scenario", NameOf(c.scenario));
    d->Setting(__LINE__, stage + "_test_mode", "PerformanceOnly");
    d->Setting(__LINE__, stage + "_min_duration_ms", kMinDurationMs);
    d->Setting(__LINE__, stage + "_min_query_count", kMinQueries);
    d->Setting(__LINE__, stage + "_qsl_rng_seed", info.seed);
    d->Setting(__LINE__, stage + "_sample_index_rng_seed", info.seed);
    d->Setting(__LINE__, stage + "_schedule_rng_seed", info.seed);
  }
  d->Setting(__LINE__, "effective_samples_per_query", 1);
  d->Setting(__LINE__, "effective_target_qps", qps);
  d->Setting(__LINE__, "effective_max_async_queries", info.max_concurrency);
  d->Setting(__LINE__, "requested_use_token_latencies", true);
  d->Setting(__LINE__, "requested_ttft_latency", Ns(info.limits.ttft_ms));
  d->Setting(__LINE__, "requested_tpot_latency", Ns(info.limits.tpot_ms));
}

void AddErrors(const RunRecord& run, Detail* d) {
  int lines = 0;
  for (const RequestRecord& r : run.requests) {
    const bool error = r.outcome == Outcome::kFailed || r.outcome == Outcome::kIncomplete;
    if (!Counts(r) || !error || ++lines > kMaxErrorLines) continue;
    d->Error(__LINE__, static_cast<double>(r.end_ns) / 1e6,
             absl::StrCat("request ", r.index, " ", Name(r.outcome), ": ", r.error));
  }
}

void AddVerdict(const Summary& s, const Checks& c, Detail* d) {
  d->Result(__LINE__, "result_validity", c.valid() ? "VALID" : "INVALID");
  if (c.scenario == Scenario::kServer) {
    d->Result(__LINE__, "result_perf_constraints_met", c.constraints_met());
  }
  d->Result(__LINE__, "result_min_duration_met", c.duration_met);
  d->Result(__LINE__, "result_min_queries_met", c.queries_met);
  std::string reasons;
  for (const std::string& each : c.recommendations) absl::StrAppend(&reasons, each, " ");
  if (!c.valid()) d->Result(__LINE__, "result_invalid_reason", reasons);
  d->Result(__LINE__, "result_query_count", s.completed);
  if (c.scenario == Scenario::kServer) {
    d->Result(__LINE__, "result_scheduled_samples_per_sec", s.offered_throughput);
    d->Result(__LINE__, "result_completed_samples_per_sec", s.request_throughput);
    d->Result(__LINE__, "result_completed_tokens_per_second", s.output_throughput);
  } else {
    d->Result(__LINE__, "result_samples_per_second", s.request_throughput);
    d->Result(__LINE__, "result_tokens_per_second", s.output_throughput);
  }
}

void AddLatencies(const Summary& s, Detail* d) {
  d->Result(__LINE__, "result_min_latency_ns", Ns(s.e2e_sched.min));
  d->Result(__LINE__, "result_max_latency_ns", Ns(s.e2e_sched.max));
  d->Result(__LINE__, "result_mean_latency_ns", Ns(s.e2e_sched.mean));
  d->Result(__LINE__, "result_first_token_min_latency_ns", Ns(s.ttft_sched.min));
  d->Result(__LINE__, "result_first_token_max_latency_ns", Ns(s.ttft_sched.max));
  d->Result(__LINE__, "result_first_token_mean_latency_ns", Ns(s.ttft_sched.mean));
  d->Result(__LINE__, "result_time_to_output_token_min", Ns(s.tpot.min));
  d->Result(__LINE__, "result_time_to_output_token_max", Ns(s.tpot.max));
  d->Result(__LINE__, "result_time_to_output_token_mean", Ns(s.tpot.mean));
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    const std::string p = absl::StrFormat("%.2f_percentile", kPercentiles[i]);
    d->Result(__LINE__, "result_" + p + "_latency_ns", Ns(s.e2e_sched.percentile[i]));
    d->Result(__LINE__, "result_first_token_" + p + "_latency_ns", Ns(s.ttft_sched.percentile[i]));
    d->Result(__LINE__, "result_time_per_output_token_" + p + "_ns", Ns(s.tpot.percentile[i]));
  }
}

}  // namespace

std::string LoadgenSummary(const RunRecord& run, const Summary& s) {
  const Checks c = Check(run, s);
  const int errors = NumErrors(s);
  return absl::StrCat(
      kUnofficial, Heading("MLPerf Results Summary"), Results(run, s, c), "\n",
      Heading("Additional Stats"), AdditionalStats(s, c), "\n", Heading("Test Parameters Used"),
      Parameters(run.info), "\nNo warnings encountered during test.\n\n",
      errors == 0   ? "No errors encountered during test."
      : errors == 1 ? "1 ERROR encountered. See detailed log."
                    : absl::StrCat(errors, " ERRORS encountered. See detailed log."),
      "\n");
}

std::string LoadgenDetail(const RunRecord& run, const Summary& s) {
  const Checks c = Check(run, s);
  Detail detail(run);
  AddSettings(run, c, &detail);
  AddErrors(run, &detail);
  AddVerdict(s, c, &detail);
  AddLatencies(s, &detail);
  return absl::StrCat("# ", "unofficial = true\n", detail.text());
}

}  // namespace quire::load

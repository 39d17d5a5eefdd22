// Our own record of a run: one line of JSON with every figure, and with the facts needed to judge
// and to repeat it.
#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "clients/load/figures/turn_figures.h"
#include "clients/load/figures/verdict.h"
#include "clients/load/report/reports.h"
#include "version/build_facts.h"

namespace quire::load {
namespace {

using Json = nlohmann::ordered_json;

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "";
}

// The client's machine; GetServerInfo has the server's.
Json ClientMachine() {
  utsname name{};
  uname(&name);
  Json j;
  j["cpu"] = ProcessorName();
  j["threads"] = sysconf(_SC_NPROCESSORS_ONLN);
  j["memory_bytes"] = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  j["kernel"] = absl::StrCat(name.sysname, " ", name.release, " ", name.machine);
  return j;
}

Json SettingsOf(const RunInfo& info) {
  Json j;
  j["target"] = info.target;
  j["model"] = info.model;
  j["server"] = info.server;
  j["workload"] = info.workload;
  j["command_line"] = info.command_line;
  j["arrival"] = info.arrival;
  j["request_rate"] = std::isfinite(info.request_rate) ? Json(info.request_rate) : Json("inf");
  j["burstiness"] = std::isfinite(info.burstiness) ? Json(info.burstiness) : Json("inf");
  j["max_concurrency"] = info.max_concurrency;
  j["seed"] = info.seed;
  j["sessions"] = info.sessions;
  j["goodput_ttft_ms"] = info.limits.ttft_ms;
  j["goodput_tpot_ms"] = info.limits.tpot_ms;
  j["goodput_e2e_ms"] = info.limits.e2e_ms;
  j["metadata"] = Json::object();
  for (const auto& [key, value] : info.metadata) j["metadata"][key] = value;
  return j;
}

Json LatencyOf(const LatencyFigures& figures) {
  Json j;
  j["count"] = figures.count;
  j["mean"] = figures.mean;
  j["std"] = figures.std;
  j["min"] = figures.min;
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    j[absl::StrCat("p", kPercentiles[i])] = figures.percentile[i];
  }
  j["max"] = figures.max;
  return j;
}

Json CountsOf(const Summary& s) {
  Json j;
  j["planned"] = s.planned;
  j["completed"] = s.completed;
  j["failed"] = s.failed;
  j["cancelled"] = s.cancelled;
  j["incomplete"] = s.incomplete;
  j["broken_sequences"] = s.broken_sequences;
  j["input_tokens"] = s.input_tokens;
  j["output_tokens"] = s.output_tokens;
  j["received_tokens"] = s.received_tokens;
  j["peak_concurrency"] = s.peak_concurrency;
  return j;
}

Json RatesOf(const Summary& s) {
  Json j;
  j["duration_seconds"] = s.duration_seconds;
  j["offered_requests_per_second"] = s.offered_throughput;
  j["requests_per_second"] = s.request_throughput;
  j["goodput_requests_per_second"] = s.goodput < 0 ? Json(nullptr) : Json(s.goodput);
  j["output_tokens_per_second"] = s.output_throughput;
  j["received_tokens_per_second"] = s.received_throughput;
  j["total_tokens_per_second"] = s.total_throughput;
  j["steady_output_tokens_per_second"] = s.steady_output_throughput;
  j["peak_output_tokens_per_second"] = s.peak_output_tokens_per_second;
  j["mean_concurrency"] = s.mean_concurrency;
  return j;
}

Json LatenciesOf(const Summary& s, const TurnFigures& turns) {
  Json j;
  j["ttft_ms"] = LatencyOf(s.ttft);
  j["ttft_sched_ms"] = LatencyOf(s.ttft_sched);
  j["tpot_ms"] = LatencyOf(s.tpot);
  j["itl_ms"] = LatencyOf(s.itl);
  j["itl_per_token_ms"] = LatencyOf(s.itl_per_token);
  j["e2e_ms"] = LatencyOf(s.e2e);
  j["e2e_sched_ms"] = LatencyOf(s.e2e_sched);
  j["server_queue_ms"] = LatencyOf(s.queue);
  j["client_lag_ms"] = LatencyOf(s.client_lag);
  j["ttft_first_turn_ms"] = LatencyOf(turns.ttft.empty() ? LatencyFigures() : turns.ttft[0]);
  j["ttft_later_turns_ms"] = LatencyOf(turns.ttft_later);
  j["restore_ms"] = LatencyOf(turns.restore);
  return j;
}

// The place of the KV of prompts, in tokens; requests by outcome.
Json ResidencyOf(const TurnFigures& turns) {
  Json j;
  j["device_tokens"] = turns.device_tokens;
  j["host_tokens"] = turns.host_tokens;
  j["recomputed_tokens"] = turns.recomputed_tokens;
  j["new_tokens"] = turns.new_tokens;
  for (size_t i = 0; i < turns.outcomes.size(); ++i) {
    j["outcomes"][OutcomeName(i)] = turns.outcomes[i];
  }
  return j;
}

Json ClientOf(const ClientHealth& health) {
  Json j;
  j["version"] = ThisBuild().version;
  j["machine"] = ClientMachine();
  j["lag_p99_seconds"] = health.lag_p99_seconds;
  j["lag_max_seconds"] = health.lag_max_seconds;
  j["cpu_share"] = health.cpu_share;
  j["peak_rss_bytes"] = health.peak_rss_bytes;
  return j;
}

// Failed requests by the number of their gRPC status: how many, and the first one's error.
Json FailuresOf(const RunRecord& run) {
  Json j = Json::object();
  for (const RequestRecord& r : run.requests) {
    if (!Counts(r) || r.outcome != Outcome::kFailed) continue;
    Json& of_status = j[absl::StrCat(r.status_code)];
    if (of_status.is_null()) of_status = {{"count", 0}, {"first_error", r.error}};
    of_status["count"] = of_status["count"].get<int>() + 1;
  }
  return j;
}

// A list for each quantity; a gauge that was not scraped is null.
Json TimelineOf(const std::vector<TimelinePoint>& timeline) {
  Json j;
  for (const char* key : {"seconds", "in_flight", "sent", "finished", "failed", "tokens",
                          "kv_usage", "running", "waiting"}) {
    j[key] = Json::array();
  }
  for (const TimelinePoint& point : timeline) {
    j["seconds"].push_back(point.seconds);
    j["in_flight"].push_back(point.in_flight);
    j["sent"].push_back(point.sent);
    j["finished"].push_back(point.finished);
    j["failed"].push_back(point.failed);
    j["tokens"].push_back(point.tokens);
    j["kv_usage"].push_back(point.kv_usage);
    j["running"].push_back(point.running);
    j["waiting"].push_back(point.waiting);
  }
  return j;
}

}  // namespace

std::string PerfJsonLine(const RunRecord& run, const Summary& s) {
  const Verdict verdict = Judge(run, s);
  const TurnFigures turns = SummarizeTurns(run);
  Json j;
  j["format"] = "quire-load/1";
  j["date"] = run.info.date;
  j["valid"] = verdict.valid;
  j["partial"] = verdict.partial;
  j["reasons"] = verdict.reasons;
  j["end"] = Name(run.end);
  j["settings"] = SettingsOf(run.info);
  j["client"] = ClientOf(run.health);
  j["counts"] = CountsOf(s);
  j["failures"] = FailuresOf(run);
  j["rates"] = RatesOf(s);
  j["latencies"] = LatenciesOf(s, turns);
  j["residency"] = ResidencyOf(turns);
  j["ttft_ms_by_turn"] = Json::array();
  for (const LatencyFigures& figures : turns.ttft)
    j["ttft_ms_by_turn"].push_back(LatencyOf(figures));
  j["timeline"] = TimelineOf(run.timeline);
  return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace quire::load

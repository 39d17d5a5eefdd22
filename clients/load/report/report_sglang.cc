// The line that SGLang's bench_serving appends to its JSONL.
#include <cmath>
#include <nlohmann/json.hpp>

#include "clients/load/figures/verdict.h"
#include "clients/load/report/reports.h"

namespace quire::load {
namespace {

using Json = nlohmann::ordered_json;

double AtPercent(const LatencyFigures& figures, double percent) {
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    if (kPercentiles[i] == percent) return figures.percentile[i];
  }
  return 0;
}

void AddLatency(const std::string& name, const LatencyFigures& figures, Json* json) {
  const std::string suffix = "_" + name + "_ms";
  (*json)["mean" + suffix] = figures.mean;
  (*json)["median" + suffix] = figures.median;
  (*json)["std" + suffix] = figures.std;
  (*json)["p99" + suffix] = AtPercent(figures, 99);
}

void AddLatencies(const Summary& s, Json* json) {
  AddLatency("e2e_latency", s.e2e, json);
  (*json)["p90_e2e_latency_ms"] = AtPercent(s.e2e, 90);
  AddLatency("ttft", s.ttft, json);
  AddLatency("tpot", s.tpot, json);
  AddLatency("itl", s.itl, json);
  (*json)["p95_itl_ms"] = AtPercent(s.itl, 95);
  (*json)["max_itl_ms"] = s.itl.max;
}

void AddRequests(const RunRecord& run, Json* json) {
  Json& j = *json;
  for (const char* key :
       {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"}) {
    j[key] = Json::array();
  }
  for (const RequestRecord& r : run.requests) {
    if (!Counts(r) || r.outcome == Outcome::kPending) continue;
    const bool ok = r.outcome == Outcome::kOk;
    j["input_lens"].push_back(r.prompt_tokens);
    j["output_lens"].push_back(ok ? r.output_tokens : 0);
    j["ttfts"].push_back(TtftMs(r) / 1e3);
    j["itls"].push_back(r.gap_seconds);
    j["generated_texts"].push_back(r.text);
    j["errors"].push_back(!r.error.empty() || ok ? r.error : Name(r.outcome));
  }
}

}  // namespace

std::string SglangJsonLine(const RunRecord& run, const Summary& s) {
  const RunInfo& info = run.info;
  const double seconds = s.duration_seconds;
  Json j;
  j["tag"] = nullptr;
  j["backend"] = "quire";
  j["dataset_name"] = info.workload;
  j["request_rate"] = std::isfinite(info.request_rate) ? Json(info.request_rate) : Json("inf");
  j["max_concurrency"] = info.max_concurrency > 0 ? Json(info.max_concurrency) : Json(nullptr);
  // Settings of data sets that this client does not have.
  for (const char* key :
       {"sharegpt_output_len", "random_input_len", "random_output_len", "random_range_ratio"}) {
    j[key] = nullptr;
  }
  j["server_info"] = info.server;
  j["duration"] = seconds;
  j["completed"] = s.completed;
  j["total_input_tokens"] = s.input_tokens;
  j["total_input_text_tokens"] = s.input_tokens;
  j["total_input_vision_tokens"] = 0;
  j["total_output_tokens"] = s.output_tokens;
  // Tokens are counted in the stream, so counting them again in the text could only be worse.
  j["total_output_tokens_retokenized"] = s.output_tokens;
  j["request_throughput"] = s.request_throughput;
  j["input_throughput"] = s.total_throughput - s.output_throughput;
  j["output_throughput"] = s.output_throughput;
  j["output_throughput_retokenized"] = s.output_throughput;
  j["total_throughput"] = s.total_throughput;
  j["total_throughput_retokenized"] = s.total_throughput;
  AddLatencies(s, &j);
  j["concurrency"] = s.mean_concurrency;
  j["accept_length"] = nullptr;  // of speculative decoding
  if (info.detailed) AddRequests(run, &j);
  const Verdict verdict = Judge(run, s);
  if (!verdict.valid) j["invalid"] = verdict.reasons;
  if (verdict.partial) j["partial"] = verdict.reasons;
  return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace quire::load

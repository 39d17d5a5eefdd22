// The block and the JSON of `vllm bench serve`, as it writes them for the metrics
// ttft, tpot, itl, e2el and the percentiles 50, 90, 95, 99.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/load/figures/verdict.h"
#include "clients/load/report/reports.h"

namespace quire::load {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWidth = 50;  // of the block; labels take 40, a space, values 10

struct Section {
  const char* key;     // in the JSON
  const char* label;   // in the block
  const char* header;  // above its lines
  const LatencyFigures* figures;
};

// Queueing in the client exists only where a cap on concurrency can hold back requests.
std::vector<Section> Sections(const RunRecord& run, const Summary& s) {
  std::vector<Section> sections = {
      {"ttft", "TTFT", "Time to First Token", &s.ttft},
      {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &s.tpot},
      {"itl", "ITL", "Inter-token Latency", &s.itl},
      {"e2el", "E2EL", "End-to-end Latency", &s.e2e},
  };
  if (run.info.max_concurrency > 0) {
    sections.push_back(
        {"client_queue_time", "Client Queue Time", "Client-side Queueing", &s.client_lag});
    if (std::isfinite(run.info.request_rate)) {
      sections.push_back({"e2el_including_client_queue", "E2EL incl. Client Queue",
                          "Queue-inclusive End-to-end Latency", &s.e2e_sched});
    }
  }
  return sections;
}

// Names and values of a section's lines.
std::vector<std::pair<std::string, double>> Percentiles(const LatencyFigures& figures) {
  std::vector<std::pair<std::string, double>> named;
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    const double p = kPercentiles[i];
    if (p == 97 || p == 99.9) continue;
    named.emplace_back(absl::StrCat(static_cast<int>(p)), figures.percentile[i]);
  }
  return named;
}

// Centred as Python's format does it: the odd column goes to the right.
std::string Centred(const std::string& text, char fill) {
  const int pad = std::max(0, kWidth - static_cast<int>(text.size()));
  return absl::StrCat(std::string(pad / 2, fill), text, std::string(pad - pad / 2, fill), "\n");
}

std::string Line(const std::string& label, double value) {
  return absl::StrFormat("%-40s %-10.2f\n", label, value);
}

std::string Line(const std::string& label, int64_t value) {
  return absl::StrFormat("%-40s %-10d\n", label, value);
}

// That benchmark knows only success and failure, so requests that were cut off count as failed.
int64_t NotSuccessful(const Summary& s) { return s.failed + s.incomplete; }

std::string RateLines(const RunRecord& run, const Summary& s) {
  const bool goodput = run.info.limits.any();
  return absl::StrCat(
      Line("Benchmark duration (s):", s.duration_seconds),
      Line("Total input tokens:", s.input_tokens), Line("Total generated tokens:", s.output_tokens),
      Line("Request throughput (req/s):", s.request_throughput),
      goodput ? Line("Request goodput (req/s):", s.goodput) : "",
      Line("Output token throughput (tok/s):", s.output_throughput),
      Line("Peak output token throughput (tok/s):", s.peak_output_tokens_per_second),
      Line("Peak concurrent requests:", static_cast<double>(s.peak_concurrency)),
      Line("Total token throughput (tok/s):", s.total_throughput));
}

// A run that was cut has tokens of requests that did not complete; the lines above leave them out.
std::string ReceivedLines(const Summary& s) {
  return absl::StrCat(Line("Tokens received, cut requests too:", s.received_tokens),
                      Line("Received throughput (tok/s):", s.received_throughput));
}

Json Settings(const RunRecord& run, const Summary& s) {
  const RunInfo& info = run.info;
  Json json;
  json["date"] = info.date;
  json["endpoint_type"] = "quire";
  json["backend"] = "quire";
  json["label"] = info.workload.empty() ? "quire" : info.workload;
  json["model_id"] = info.model;
  json["tokenizer_id"] = info.model;  // the server's own; this client has none
  json["num_prompts"] = s.planned;
  json["request_rate"] = std::isfinite(info.request_rate) ? Json(info.request_rate) : Json("inf");
  json["burstiness"] = info.burstiness;
  json["max_concurrency"] = info.max_concurrency > 0 ? Json(info.max_concurrency) : Json(nullptr);
  return json;
}

void AddFigures(const RunRecord& run, const Summary& s, Json* json) {
  Json& j = *json;
  j["duration"] = s.duration_seconds;
  j["completed"] = s.completed;
  j["failed"] = NotSuccessful(s);
  j["total_input_tokens"] = s.input_tokens;
  j["total_output_tokens"] = s.output_tokens;
  j["request_throughput"] = s.request_throughput;
  j["request_goodput"] = run.info.limits.any() ? Json(s.goodput) : Json(nullptr);
  j["output_throughput"] = s.output_throughput;
  j["total_token_throughput"] = s.total_throughput;
  j["max_output_tokens_per_s"] = s.peak_output_tokens_per_second;
  j["max_concurrent_requests"] = s.peak_concurrency;
  j["rtfx"] = 0.0;  // of speech recognition
  for (const Section& section : Sections(run, s)) {
    const std::string suffix = absl::StrCat("_", section.key, "_ms");
    j["mean" + suffix] = section.figures->mean;
    j["median" + suffix] = section.figures->median;
    j["std" + suffix] = section.figures->std;
    for (const auto& [name, value] : Percentiles(*section.figures)) {
      j["p" + name + suffix] = value;
    }
  }
}

// Lists with an entry for each request that was sent; times in seconds. A request that did not
// succeed has output length and latency 0 and its error.
void AddRequests(const RunRecord& run, Json* json) {
  Json& j = *json;
  for (const char* key : {"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times",
                          "queue_times", "generated_texts", "errors"}) {
    j[key] = Json::array();
  }
  for (const RequestRecord& r : run.requests) {
    if (!Counts(r) || r.outcome == Outcome::kPending) continue;
    const bool ok = r.outcome == Outcome::kOk;
    j["input_lens"].push_back(r.prompt_tokens);
    j["output_lens"].push_back(ok ? r.output_tokens : 0);
    j["ttfts"].push_back(TtftMs(r) / 1e3);
    j["itls"].push_back(r.gap_seconds);
    j["latencies"].push_back(ok ? E2eMs(r) / 1e3 : 0);
    j["start_times"].push_back(static_cast<double>(r.sent_ns) / 1e9);
    j["queue_times"].push_back(static_cast<double>(r.sent_ns - r.planned_ns) / 1e9);
    j["generated_texts"].push_back(r.text);
    j["errors"].push_back(!r.error.empty() || ok ? r.error : Name(r.outcome));
  }
}

}  // namespace

std::string VllmText(const RunRecord& run, const Summary& s) {
  std::string text;
  const Verdict verdict = Judge(run, s);
  for (const std::string& reason : verdict.reasons) {
    absl::StrAppend(&text, verdict.Word(), ": ", reason, "\n");
  }
  absl::StrAppend(&text, Centred(" Serving Benchmark Result ", '='),
                  Line("Successful requests:", int64_t{s.completed}),
                  Line("Failed requests:", NotSuccessful(s)));
  if (run.info.max_concurrency > 0) {
    text += Line("Maximum request concurrency:", int64_t{run.info.max_concurrency});
  }
  if (std::isfinite(run.info.request_rate)) {
    text += Line("Request rate configured (RPS):", run.info.request_rate);
  }
  text += RateLines(run, s);
  if (verdict.partial) text += ReceivedLines(s);
  for (const Section& section : Sections(run, s)) {
    const std::string unit = absl::StrCat(" ", section.label, " (ms):");
    absl::StrAppend(&text, Centred(section.header, '-'), Line("Mean" + unit, section.figures->mean),
                    Line("Median" + unit, section.figures->median));
    for (const auto& [name, value] : Percentiles(*section.figures)) {
      text += Line("P" + name + unit, value);
    }
  }
  return absl::StrCat(text, std::string(kWidth, '='), "\n");
}

std::string VllmJson(const RunRecord& run, const Summary& s) {
  Json json = Settings(run, s);
  Json figures;
  AddFigures(run, s, &figures);
  if (run.info.detailed) AddRequests(run, &figures);
  const Verdict verdict = Judge(run, s);
  std::string why;
  for (const std::string& reason : verdict.reasons) {
    absl::StrAppend(&why, why.empty() ? "" : " ", reason);
  }
  // Only for runs that are not good: a good run has exactly the expected keys.
  if (!verdict.valid) figures["invalid"] = why;
  if (verdict.partial) {
    figures["partial"] = why;
    figures["received_output_tokens"] = s.received_tokens;
    figures["received_output_throughput"] = s.received_throughput;
  }
  if (s.cancelled > 0) figures["cancelled"] = s.cancelled;
  for (const auto& [key, value] : run.info.metadata) {
    // Our keys keep their meaning; the user's value gets the prefix.
    const bool taken = json.contains(key) || figures.contains(key);
    json[taken ? "metadata_" + key : key] = value;
  }
  json.update(figures);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace quire::load

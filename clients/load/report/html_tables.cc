// Tables small enough for a phone: few columns, or a box of their own to scroll in.
#include "clients/load/report/html_tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/load/figures/turn_figures.h"
#include "clients/load/figures/verdict.h"
#include "clients/load/report/curves.h"
#include "clients/load/report/html_plots.h"
#include "clients/load/report/html_text.h"

namespace quire::load {
namespace {

constexpr int kMaxTimelineRows = 24;
constexpr size_t kMaxErrorRows = 10;

struct Column {
  const char* name;
  const LatencyFigures* figures;
};

std::string HeadRow(const std::vector<std::string>& names) {
  std::string out = "<thead><tr>";
  for (const std::string& name : names) {
    absl::StrAppend(&out, "<th scope=\"col\">", Escape(name), "</th>");
  }
  return out + "</tr></thead>";
}

std::string Row(const std::string& name, const std::vector<std::string>& cells) {
  std::string out = absl::StrCat("<tr><th scope=\"row\">", Escape(name), "</th>");
  for (const std::string& cell : cells) absl::StrAppend(&out, "<td>", Escape(cell), "</td>");
  return out + "</tr>\n";
}

std::string LatencyTable(const char* caption, const std::vector<Column>& columns) {
  std::vector<std::string> names = {""};
  for (const Column& column : columns) names.push_back(column.name);
  std::string out = absl::StrCat("<div class=\"scroll\"><table class=\"full\"><caption>", caption,
                                 "</caption>", HeadRow(names), "<tbody>\n");
  const auto row = [&](const std::string& name, const auto& value) {
    std::vector<std::string> cells;
    for (const Column& column : columns) {
      cells.push_back(column.figures->count > 0 ? Readable(value(*column.figures)) : "–");
    }
    out += Row(name, cells);
  };
  row("mean", [](const LatencyFigures& f) { return f.mean; });
  row("std", [](const LatencyFigures& f) { return f.std; });
  row("min", [](const LatencyFigures& f) { return f.min; });
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    row(absl::StrCat("p", kPercentiles[i]),
        [i](const LatencyFigures& f) { return f.percentile[i]; });
  }
  row("max", [](const LatencyFigures& f) { return f.max; });
  row("count", [](const LatencyFigures& f) { return static_cast<double>(f.count); });
  return out + "</tbody></table></div>\n";
}

std::string Fact(const char* name, const std::string& value) {
  if (value.empty()) return "";
  return absl::StrCat("<tr><th scope=\"row\">", name, "</th><td>", Escape(value), "</td></tr>\n");
}

std::string ArrivalWords(const RunInfo& info) {
  std::string words = info.arrival;
  if (std::isfinite(info.request_rate) && info.request_rate > 0) {
    absl::StrAppend(&words, words.empty() ? "" : ", ", Readable(info.request_rate), " requests/s");
  }
  if (info.burstiness != 1 && std::isfinite(info.burstiness)) {
    absl::StrAppend(&words, ", burstiness ", Readable(info.burstiness));
  }
  if (info.max_concurrency > 0) {
    absl::StrAppend(&words, words.empty() ? "" : ", ", "at most ", info.max_concurrency,
                    " at once");
  }
  return words;
}

std::string LimitWords(const GoodputLimits& limits) {
  std::string words;
  const auto add = [&](const char* name, double ms) {
    if (ms > 0) absl::StrAppend(&words, words.empty() ? "" : ", ", name, " ", Duration(ms));
  };
  add("TTFT", limits.ttft_ms);
  add("TPOT", limits.tpot_ms);
  add("E2E", limits.e2e_ms);
  return words;
}

}  // namespace

std::string PercentileTables(const Summary& s) {
  return absl::StrCat(
      "<div class=\"tables\">\n",
      LatencyTable("Milliseconds. TTFT and E2E from sending; ITL is every gap between frames.",
                   {{"TTFT", &s.ttft}, {"TPOT", &s.tpot}, {"ITL", &s.itl}, {"E2E", &s.e2e}}),
      LatencyTable("Milliseconds. TTFT and E2E from the planned time of sending, which includes "
                   "the lag of a late client; ITL divided by the tokens of each frame.",
                   {{"TTFT planned", &s.ttft_sched},
                    {"E2E planned", &s.e2e_sched},
                    {"ITL per token", &s.itl_per_token}}),
      LatencyTable("Milliseconds. Waiting in the server’s queue, and between the planned and the "
                   "real time of sending.",
                   {{"server queue", &s.queue}, {"client lag", &s.client_lag}}),
      "</div>\n");
}

std::string PointsTable(const std::vector<RunRecord>& runs, const std::vector<Summary>& summaries) {
  std::string out = absl::StrCat(
      "<div class=\"scroll\"><table><caption>Each point of the sweep; latencies in "
      "milliseconds.</caption>",
      HeadRow({"offered", "completed, req/s", "goodput, req/s", "output, tok/s", "TTFT p50",
               "TTFT p99", "TPOT p50", "TPOT p99", "completed", "failed", "verdict"}),
      "<tbody>\n");
  for (size_t i = 0; i < runs.size(); ++i) {
    const Summary& s = summaries[i];
    out += Row(PointName(runs[i].info),
               {Readable(s.request_throughput), s.goodput < 0 ? "–" : Readable(s.goodput),
                Readable(s.output_throughput), Readable(s.ttft.percentile[0]),
                Readable(s.ttft.percentile[4]), Readable(s.tpot.percentile[0]),
                Readable(s.tpot.percentile[4]), Readable(s.completed), Readable(s.failed),
                Judge(runs[i], s).Word()});
  }
  return out + "</tbody></table></div>\n";
}

std::string TimelineTable(const RunRecord& run) {
  const std::vector<Stretch> all = Stretches(run, kMaxTimelineRows);
  if (all.empty()) return "";
  std::string out = absl::StrCat(
      "<details><summary>The numbers of these plots</summary><div class=\"scroll\"><table>"
      "<caption>Means of equal stretches of the run; the time is their middle.</caption>",
      HeadRow({"time, s", "tokens/s", "sent/s", "finished/s", "failed/s", "in flight",
               "tokens in flight", "KV, %", "running", "waiting"}),
      "<tbody>\n");
  for (const Stretch& s : all) {
    out += Row(Readable(s.seconds),
               {Readable(s.tokens_per_second), Readable(s.sent_per_second),
                Readable(s.finished_per_second), Readable(s.failed_per_second),
                Readable(s.requests_in_flight), Readable(s.tokens_in_flight),
                Readable(s.kv_percent), Readable(s.running), Readable(s.waiting)});
  }
  return out + "</tbody></table></div></details>\n";
}

std::string TurnsTable(const RunRecord& run) {
  if (!run.info.conversations) return "";
  const TurnFigures f = SummarizeTurns(run);
  std::string out = absl::StrCat(
      "<div class=\"scroll\"><table><caption>Time to first token by turn, milliseconds; histories ",
      run.info.sessions ? "kept in sessions" : "sent again each turn", ".</caption>",
      HeadRow({"turn", "requests", "mean", "p50", "p90", "p99"}), "<tbody>\n");
  const auto row = [&](const std::string& name, const LatencyFigures& ttft) {
    out += Row(name,
               {Readable(static_cast<double>(ttft.count)), Readable(ttft.mean),
                Readable(ttft.median), Readable(ttft.percentile[1]), Readable(ttft.percentile[4])});
  };
  for (size_t i = 0; i < f.ttft.size(); ++i) row(absl::StrCat(i + 1), f.ttft[i]);
  row("later", f.ttft_later);
  absl::StrAppend(&out,
                  "</tbody></table></div>\n<table class=\"facts full\"><caption>Tokens of "
                  "prompts by where their KV came from.</caption><tbody>\n");
  const auto tokens = [](int64_t count) { return Readable(static_cast<double>(count)); };
  absl::StrAppend(
      &out, Fact("the device", tokens(f.device_tokens)), Fact("the host", tokens(f.host_tokens)),
      Fact("computed again", tokens(f.recomputed_tokens)), Fact("new", tokens(f.new_tokens)));
  if (f.restore.count > 0) {
    absl::StrAppend(
        &out,
        Fact("restores", absl::StrCat(f.restore.count, ", ", Duration(f.restore.median),
                                      " at p50, ", Duration(f.restore.percentile[4]), " at p99")));
  }
  return out + "</tbody></table>\n";
}

std::string ErrorTable(const RunRecord& run) {
  std::map<std::string, int> counts;
  for (const RequestRecord& r : run.requests) {
    if (r.outcome != Outcome::kFailed && r.outcome != Outcome::kIncomplete) continue;
    ++counts[absl::StrCat(Name(r.outcome), r.error.empty() ? "" : ": ", r.error)];
  }
  if (counts.empty()) return "";
  std::vector<std::pair<int, std::string>> rows;
  for (const auto& [sentence, count] : counts) rows.emplace_back(-count, sentence);
  std::sort(rows.begin(), rows.end());
  std::string out = absl::StrCat(
      "<table class=\"facts full\"><caption>Requests that did not complete, by their "
      "error.</caption><tbody>\n");
  for (size_t i = 0; i < std::min(rows.size(), kMaxErrorRows); ++i) {
    out += Row(Readable(-rows[i].first), {rows[i].second});
  }
  if (rows.size() > kMaxErrorRows) {
    absl::StrAppend(
        &out, Row("", {absl::StrCat("and ", rows.size() - kMaxErrorRows, " other sentences")}));
  }
  return out + "</tbody></table>\n";
}

std::string SettingsTable(const RunRecord& run) {
  const RunInfo& info = run.info;
  const ClientHealth& health = run.health;
  std::string out = "<table class=\"facts full\"><tbody>\n";
  absl::StrAppend(&out, Fact("date", ReadableDate(info.date)), Fact("target", info.target),
                  Fact("server", info.server), Fact("model", info.model),
                  Fact("workload", info.workload), Fact("arrivals", ArrivalWords(info)),
                  Fact("seed", absl::StrCat(info.seed)),
                  Fact("goodput limits", LimitWords(info.limits)));
  for (const auto& [key, value] : info.metadata) {
    absl::StrAppend(&out, Row(key, {value}));
  }
  absl::StrAppend(
      &out, Fact("client",
                 absl::StrCat("sent ", Duration(health.lag_p99_seconds * 1e3), " late at p99, ",
                              Duration(health.lag_max_seconds * 1e3), " at most; CPU ",
                              Readable(health.cpu_share * 100), " %; memory ",
                              Readable(static_cast<double>(health.peak_rss_bytes >> 20)), " MiB")));
  return out + "</tbody></table>\n";
}

}  // namespace quire::load

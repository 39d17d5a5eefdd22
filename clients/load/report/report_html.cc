// The page of a run or a sweep: first its verdict, then the few figures that matter, then the
// plots, then every number and the command line.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "clients/load/figures/verdict.h"
#include "clients/load/report/html_plots.h"
#include "clients/load/report/html_tables.h"
#include "clients/load/report/html_text.h"
#include "clients/load/report/reports.h"
#include "version/build_facts.h"

namespace quire::load {
namespace {

std::string Paragraphs(const std::string& before, const std::vector<std::string>& sentences) {
  std::string out;
  for (const std::string& sentence : sentences) {
    absl::StrAppend(&out, "<p>", Escape(before + sentence), "</p>");
  }
  return out;
}

// "Valid" with its meaning, or the reasons why not, for one run or each bad point of a sweep.
std::string Banner(const std::vector<RunRecord>& runs, const std::vector<Summary>& summaries) {
  std::string reasons, notes;
  bool good = true;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Verdict verdict = Judge(runs[i], summaries[i]);
    const std::string point =
        runs.size() == 1 ? "" : absl::StrCat("At ", PointName(runs[i].info), ": ");
    good = good && verdict.good();
    if (!verdict.good()) {
      absl::StrAppend(&reasons, "<p><b>", verdict.Word(), ".</b></p>",
                      Paragraphs(point, verdict.reasons));
    }
    absl::StrAppend(&notes, Paragraphs(point, verdict.notes));
  }
  if (good) reasons = "<p><b>Valid.</b> The client kept up and every stream was whole.</p>";
  return absl::StrCat("<div class=\"verdict ", good ? "good" : "bad", "\" role=\"status\">",
                      reasons, notes, "</div>\n");
}

std::string Headline(const std::vector<RunRecord>& runs) {
  const RunInfo& info = runs[0].info;
  std::string about = absl::StrCat("Workload ", info.workload.empty() ? "custom" : info.workload);
  if (runs.size() > 1) {
    absl::StrAppend(&about, ", a sweep of ", runs.size(), " points, ", PointName(info), " to ",
                    PointName(runs.back().info));
  } else {
    absl::StrAppend(&about, ", ", PointName(info));
    if (!info.arrival.empty()) absl::StrAppend(&about, " (", info.arrival, ")");
  }
  return absl::StrCat(
      "<h1>", Escape(info.model.empty() ? "Load test" : info.model), "</h1>\n<p class=\"about\">",
      Escape(about), "</p>\n<p class=\"about\">",
      Escape(absl::StrCat(info.server, info.server.empty() ? "" : ", ", ReadableDate(info.date))),
      "</p>\n");
}

// One card: a name, a number with its unit, and a second line.
std::string Card(const std::string& name, const std::string& number, const std::string& unit,
                 const std::string& more) {
  return absl::StrCat(
      "<div><dt>", Escape(name), "</dt><dd><b>", Escape(number), "</b> <span>", Escape(unit),
      "</span></dd>",
      more.empty() ? "" : absl::StrCat("<dd class=\"more\">", Escape(more), "</dd>"), "</div>\n");
}

std::string LatencyCard(const char* name, const LatencyFigures& f) {
  if (f.count == 0) return Card(name, "–", "", "");
  const std::string median = Duration(f.median);
  const size_t space = median.find(' ');
  return Card(absl::StrCat(name, ", median"), median.substr(0, space), median.substr(space + 1),
              absl::StrCat("p99 ", Duration(f.percentile[4])));
}

std::string KeyFigures(const Summary& s) {
  std::string out = "<dl class=\"key\">\n";
  absl::StrAppend(&out,
                  Card("Output", Readable(s.output_throughput), "tokens/s",
                       s.peak_output_tokens_per_second > 0
                           ? absl::StrCat("best second ", Readable(s.peak_output_tokens_per_second))
                           : ""),
                  Card("Requests", Readable(s.request_throughput), "req/s",
                       absl::StrCat(Readable(s.completed), " of ", Readable(s.planned), " in ",
                                    Readable(s.duration_seconds), " s")));
  if (s.incomplete > 0) {
    out += Card("Received", Readable(s.received_throughput), "tokens/s",
                absl::StrCat(Readable(static_cast<double>(s.received_tokens)),
                             " tokens, those of cut requests too"));
  }
  if (s.goodput >= 0) {
    const double share = s.request_throughput > 0 ? s.goodput / s.request_throughput * 100 : 0;
    out += Card("Goodput", Readable(s.goodput), "req/s",
                absl::StrCat(Readable(share), " % within every limit"));
  }
  absl::StrAppend(&out, LatencyCard("Time to first token", s.ttft),
                  LatencyCard("Time per output token", s.tpot),
                  LatencyCard("Inter-token latency", s.itl), LatencyCard("End to end", s.e2e),
                  Card("In flight", Readable(s.mean_concurrency), "requests",
                       absl::StrCat("mean; at most ", Readable(s.peak_concurrency))));
  return out + "</dl>\n";
}

std::string Section(const std::string& title, const std::string& content) {
  if (content.empty()) return "";
  return absl::StrCat("<section><h2>", Escape(title), "</h2>\n", content, "</section>\n");
}

std::string Folded(const std::string& title, const std::string& content) {
  return absl::StrCat("<details><summary>", Escape(title), "</summary>\n", content, "</details>\n");
}

std::string OneRun(const RunRecord& run, const Summary& s) {
  return absl::StrCat(KeyFigures(s), Section("What went wrong", ErrorTable(run)),
                      Section("Conversations", TurnsTable(run)),
                      Section("Latency", LatencyPlots({run}, {s})),
                      Section("Over time", TimePlots(run) + TimelineTable(run)),
                      Section("Every percentile", PercentileTables(s)));
}

std::string ManyRuns(const std::vector<RunRecord>& runs, const std::vector<Summary>& summaries) {
  std::string points, errors;
  for (size_t i = 0; i < runs.size(); ++i) {
    points += Folded(PointName(runs[i].info),
                     absl::StrCat(KeyFigures(summaries[i]), TimePlots(runs[i]),
                                  TimelineTable(runs[i]), PercentileTables(summaries[i])));
    errors += ErrorTable(runs[i]);
  }
  return absl::StrCat(
      Section("Under growing load", SweepPlots(runs, summaries) + PointsTable(runs, summaries)),
      Section("What went wrong", errors), Section("Latency", LatencyPlots(runs, summaries)),
      Section("Each point", points));
}

}  // namespace

std::string HtmlPage(const std::vector<RunRecord>& runs, const std::vector<Summary>& summaries) {
  const std::string head = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>",
      Escape(runs.empty() ? "No run" : "Load test of " + runs[0].info.model), "</title>\n<style>",
      PageStyle(), "</style>\n</head>\n<body>\n<main>\n");
  if (runs.empty() || runs.size() != summaries.size()) {
    return absl::StrCat(head, "<h1>No run was recorded</h1>\n</main>\n</body>\n</html>\n");
  }
  const RunRecord& first = runs[0];
  const std::string again =
      absl::StrCat(first.info.command_line.empty()
                       ? ""
                       : absl::StrCat("<pre>", Escape(first.info.command_line), "</pre>\n"),
                   SettingsTable(first));
  return absl::StrCat(head, Banner(runs, summaries), Headline(runs),
                      runs.size() == 1 ? OneRun(first, summaries[0]) : ManyRuns(runs, summaries),
                      Section("To make it again", again), "</main>\n<footer>Written by quire-load ",
                      ThisBuild().version,
                      ". Percentiles by linear interpolation between order "
                      "statistics.</footer>\n</body>\n</html>\n");
}

}  // namespace quire::load

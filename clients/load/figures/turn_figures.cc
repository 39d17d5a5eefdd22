// One pass over the requests.
#include "clients/load/figures/turn_figures.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace quire::load {
namespace {

double Percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string TtftLine(const std::string& turn, const LatencyFigures& f) {
  return absl::StrFormat("%-8s %10d %10.2f %10.2f %10.2f %10.2f\n", turn, f.count, f.mean, f.median,
                         f.percentile[1], f.percentile[4]);
}
static_assert(kPercentiles[1] == 90 && kPercentiles[4] == 99);

}  // namespace

const char* OutcomeName(size_t outcome) {
  static constexpr std::array<const char*, ResidencyRecord::kOutcomes> kNames = {
      "unknown", "none", "device", "restored", "partial", "recomputed"};
  return outcome < kNames.size() ? kNames[outcome] : "unknown";
}

TurnFigures SummarizeTurns(const RunRecord& run) {
  TurnFigures figures;
  std::vector<std::vector<double>> ttft;
  std::vector<double> later, restore;
  for (const RequestRecord& r : run.requests) {
    if (!Counts(r) || r.outcome != Outcome::kOk) continue;
    const auto turn = static_cast<size_t>(r.turn);
    if (r.first_ns != 0) {
      if (ttft.size() <= turn) ttft.resize(turn + 1);
      ttft[turn].push_back(TtftMs(r));
      if (turn > 0) later.push_back(TtftMs(r));
    }
    const ResidencyRecord& from = r.residency;
    figures.device_tokens += from.device_tokens;
    figures.host_tokens += from.host_tokens;
    figures.recomputed_tokens += from.recomputed_tokens;
    figures.new_tokens +=
        r.prompt_tokens - from.device_tokens - from.host_tokens - from.recomputed_tokens;
    ++figures.outcomes[from.outcome];
    if (from.host_tokens > 0) restore.push_back(1e3 * from.restore_seconds);
  }
  for (std::vector<double>& ms : ttft) figures.ttft.push_back(FiguresOf(std::move(ms)));
  figures.ttft_later = FiguresOf(std::move(later));
  figures.restore = FiguresOf(std::move(restore));
  return figures;
}

std::string TurnsText(const RunRecord& run) {
  if (!run.info.conversations) return "";
  const TurnFigures f = SummarizeTurns(run);
  std::string text =
      absl::StrCat("------ Turns, their histories ",
                   run.info.sessions ? "in sessions ------" : "sent again ------", "\n",
                   absl::StrFormat("%-8s %10s %10s %10s %10s %10s\n", "turn", "requests",
                                   "TTFT mean", "p50", "p90", "p99, ms"));
  for (size_t i = 0; i < f.ttft.size(); ++i) text += TtftLine(absl::StrCat(i + 1), f.ttft[i]);
  text += TtftLine("later", f.ttft_later);
  const int64_t known = f.known_tokens();
  absl::StrAppend(
      &text,
      absl::StrFormat("KV of %d known tokens: %.1f %% device, %.1f %% host, %.1f %% computed "
                      "again; %d tokens new\n",
                      known, Percent(f.device_tokens, known), Percent(f.host_tokens, known),
                      Percent(f.recomputed_tokens, known), f.new_tokens));
  std::string outcomes;
  for (size_t i = 0; i < f.outcomes.size(); ++i) {
    if (f.outcomes[i] == 0) continue;
    absl::StrAppend(&outcomes, outcomes.empty() ? "" : ", ", f.outcomes[i], " ", OutcomeName(i));
  }
  absl::StrAppend(&text, "Outcomes: ", outcomes, "\n");
  if (f.restore.count > 0) {
    absl::StrAppend(
        &text, absl::StrFormat("Restores: %d, of %.2f ms at p50 and %.2f at p99\n", f.restore.count,
                               f.restore.median, f.restore.percentile[4]));
  }
  return text;
}

}  // namespace quire::load

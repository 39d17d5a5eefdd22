// Settings to runs, runs to summaries, summaries to reports and an exit code.
#include "clients/load/load_command.h"

#include "clients/load/figures/summary.h"
#include "clients/load/figures/turn_figures.h"
#include "clients/load/figures/verdict.h"
#include "clients/load/options.h"
#include "clients/load/report/report_files.h"
#include "clients/load/report/reports.h"
#include "clients/load/run/driver.h"

namespace quire::load {
namespace {

absl::StatusOr<std::vector<RunRecord>> RunAll(const Settings& settings, std::stop_token stop,
                                              std::ostream* progress) {
  if (!settings.sweep_rates.empty()) return RunSweep(settings, stop, progress);
  auto run = Run(settings, stop, progress);
  if (!run.ok()) return run.status();
  std::vector<RunRecord> runs;
  runs.push_back(*std::move(run));
  return runs;
}

// The first failure that the workload did not ask for, as it asks for deadlines that pass.
std::string FirstFailure(const RunRecord& run) {
  for (const RequestRecord& request : run.requests) {
    if (request.outcome == Outcome::kFailed && !request.warmup &&
        request.status_code != static_cast<int32_t>(absl::StatusCode::kDeadlineExceeded)) {
      return request.error;
    }
  }
  return "";
}

// Reports the faults of a run; true when there is none.
bool Accept(const RunRecord& run, const Summary& summary, std::ostream& err) {
  const Verdict verdict = Judge(run, summary);
  for (const std::string& reason : verdict.reasons) err << "quire-load: " << reason << '\n';
  for (const std::string& note : verdict.notes) err << "quire-load: " << note << '\n';
  const std::string failure = FirstFailure(run);
  if (!failure.empty()) err << "quire-load: the first failure: " << failure << '\n';
  return verdict.good() && failure.empty();
}

}  // namespace

int RunLoadCommand(const std::vector<std::string>& args, std::stop_token stop,
                   const LoadTerminal& terminal) {
  std::ostream& out = terminal.out;
  std::ostream& err = terminal.err;
  ParsedOptions parsed = ParseOptions(args, terminal.live, terminal.environment);
  out << parsed.out << std::flush;
  err << parsed.err << std::flush;
  if (!parsed.settings) return parsed.exit_code;
  const Settings& settings = *parsed.settings;
  auto runs = RunAll(settings, stop, &err);
  if (!runs.ok()) {
    err << "quire-load: " << runs.status().message() << '\n';
    return kExitFailed;
  }
  bool good = true;
  std::vector<Summary> summaries;
  for (const RunRecord& run : *runs) {
    summaries.push_back(Summarize(run));
    out << VllmText(run, summaries.back()) << TurnsText(run) << std::flush;
    good &= Accept(run, summaries.back(), err);
  }
  if (!out) {
    err << "quire-load: the results could not be written to the standard output\n";
    good = false;
  }
  if (!settings.result_dir.empty()) {
    const WrittenReports written =
        WriteReports(*runs, summaries, settings.result_dir, settings.result_filename);
    for (const std::string& file : written.files) err << "wrote " << file << '\n';
    if (!written.status.ok()) {
      err << "quire-load: " << written.status.message() << '\n';
      good = false;
    }
  }
  return good ? kExitOk : kExitFailed;
}

}  // namespace quire::load

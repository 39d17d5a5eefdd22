// Report files: writes the texts of reports.h into a directory. A reader never sees half a file,
// and a full disk does not harm the files that were there before.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "clients/load/figures/summary.h"
#include "clients/load/values/run_record.h"

namespace quire::load {

// The result of writing. Every report is tried, also after one has failed.
struct WrittenReports {
  std::vector<std::string> files;  // complete on disk, in the order written
  absl::Status
      status;  // the first failure's path and reason, other paths that failed, the files kept
};

// Writes the reports of one run, or of a sweep, into `directory`, made if missing:
//   report.html                  all runs
//   perf.jsonl, sglang.jsonl     appended to, a line for each run
//   VLLM_FILENAME                vLLM's JSON; empty: quire-RATEqps[-concurrencyN]-MODEL-DATE.json
//   vllm.txt                     vLLM's block
//   mlperf_log_summary.txt, mlperf_log_detail.txt
// The last four lie in point-1, point-2, ... when there are several runs. `summaries` has one entry
// for each run.
WrittenReports WriteReports(const std::vector<RunRecord>& runs,
                            const std::vector<Summary>& summaries, const std::string& directory,
                            const std::string& vllm_filename);

// Replaces the file by the text, or leaves it as it was: the text goes to a file beside it first,
// which then takes its name. A path that is no regular file (/dev/stdout, a pipe) is written to.
absl::Status ReplaceFile(const std::string& path, const std::string& text);

// Appends one line and its newline in one piece, or leaves the file as it was.
absl::Status AppendLine(const std::string& path, const std::string& line);

}  // namespace quire::load

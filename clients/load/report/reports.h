// Reports: the formats of a run's report. Each takes the record and its summary and returns the
// whole text; writing it is report_files.h's task. Names and labels follow the tools whose parsers
// users already have.
#pragma once

#include <string>
#include <vector>

#include "clients/load/figures/summary.h"
#include "clients/load/values/run_record.h"

namespace quire::load {

// The block vLLM's serve benchmark prints ("============ Serving Benchmark Result ============").
std::string VllmText(const RunRecord& run, const Summary& summary);
// Its JSON result, exact names; with RunInfo::detailed also the per-request lists.
std::string VllmJson(const RunRecord& run, const Summary& summary);
// One line of SGLang's bench_serving JSONL.
std::string SglangJsonLine(const RunRecord& run, const Summary& summary);
// LoadGen's summary and its ":::MLLOG" detail lines, both marked unofficial.
std::string LoadgenSummary(const RunRecord& run, const Summary& summary);
std::string LoadgenDetail(const RunRecord& run, const Summary& summary);
// Our own record, one line of JSON: every figure, machine, workload, seed, validity.
std::string PerfJsonLine(const RunRecord& run, const Summary& summary);
// One line of JSON for each turn that ended well: where its KV was, and when, in milliseconds from
// its arrival at the server, the turn was opened, its restore asked and ended, its first step and
// token came. Empty without conversations.
std::string TurnsJsonLines(const RunRecord& run);
// One self-contained page for one run, or for the points of a sweep: no script from elsewhere, no
// network, readable on a phone, in light and dark.
std::string HtmlPage(const std::vector<RunRecord>& runs, const std::vector<Summary>& summaries);

}  // namespace quire::load

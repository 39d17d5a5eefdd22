// One line of JSON for each turn of a conversation: its way to the first token, for bench/turns.
#include <cmath>
#include <nlohmann/json.hpp>

#include "clients/load/figures/turn_figures.h"
#include "clients/load/figures/verdict.h"
#include "clients/load/report/reports.h"

namespace quire::load {
namespace {

// Milliseconds, to the microsecond.
double Ms(double seconds) { return std::round(seconds * 1e6) / 1e3; }

}  // namespace

std::string TurnsJsonLines(const RunRecord& run) {
  std::string lines;
  for (const RequestRecord& r : run.requests) {
    if (r.conversation < 0 || !Counts(r) || r.outcome != Outcome::kOk) continue;
    const ResidencyRecord& kv = r.residency;
    const nlohmann::ordered_json line = {
        {"conversation", r.conversation},
        {"turn", r.turn},
        {"sent_ms", Ms(1e-9 * static_cast<double>(r.sent_ns))},
        {"prompt_tokens", r.prompt_tokens},
        {"kv", OutcomeName(kv.outcome)},
        {"device_tokens", kv.device_tokens},
        {"host_tokens", kv.host_tokens},
        {"recomputed_tokens", kv.recomputed_tokens},
        {"opened_ms", Ms(r.server.opened)},
        {"restore_asked_ms", Ms(r.server.restore_asked)},
        {"restored_ms", Ms(r.server.restored)},
        {"first_step_ms", Ms(r.server.first_step)},
        {"first_token_ms", Ms(r.server.first_token)},
        {"ttft_ms", std::round(1e3 * TtftMs(r)) / 1e3},
        {"preemptions", r.preemptions},
    };
    lines += line.dump() + "\n";
  }
  return lines;
}

}  // namespace quire::load

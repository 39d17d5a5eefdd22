// Cuts a request's life into stages at the instants that its metrics use too.
#include "server/tracing/request_record.h"

#include <algorithm>

namespace quire {
namespace {

using Kind = RequestStage::Kind;

// The earlier of a stage's own end and the request's, which stands for an end that never came.
int64_t EndOr(int64_t at_ns, int64_t end_ns) {
  return at_ns == 0 ? end_ns : std::min(at_ns, end_ns);
}

}  // namespace

const char* Name(RequestStage::Kind kind) {
  switch (kind) {
    case Kind::kArrival: return "arrival";
    case Kind::kQueue: return "queue";
    case Kind::kRestore: return "restore";
    case Kind::kPrefill: return "prefill";
    case Kind::kDecode: return "decode";
  }
  return "";
}

int64_t EndOf(const RequestRecord& record) {
  const int64_t finished_ns = record.finish.has_value() ? record.finish->timings.finished_ns : 0;
  return std::max({record.arrived_ns, record.submitted_ns, record.closed_ns, finished_ns});
}

std::vector<RequestStage> StagesOf(const RequestRecord& record) {
  std::vector<RequestStage> stages;
  stages.reserve(5);
  const int64_t end_ns = EndOf(record);
  int64_t after_ns = record.arrived_ns;  // no stage begins before the one in front of it
  const auto add = [&](Kind kind, int64_t begin_ns, int64_t stage_end_ns) {
    after_ns = std::clamp(begin_ns, after_ns, end_ns);
    stages.push_back({.kind = kind,
                      .begin_ns = after_ns,
                      .end_ns = std::max(after_ns, EndOr(stage_end_ns, end_ns))});
  };
  add(Kind::kArrival, record.arrived_ns, record.submitted_ns);
  if (!record.finish.has_value() || record.submitted_ns == 0) return stages;
  const RequestTimings& at = record.finish->timings;
  add(Kind::kQueue, record.submitted_ns, EndOr(at.admitted_ns, at.finished_ns));
  const auto add_restore = [&](bool within_queue) {
    const int64_t queued_until_ns = stages.back().end_ns;
    add(Kind::kRestore, at.restore_asked_ns, EndOr(at.restored_ns, at.finished_ns));
    stages.back().within_queue = within_queue;
    if (within_queue) stages.back().end_ns = std::min(stages.back().end_ns, queued_until_ns);
  };
  // A request that lost its KV while it ran is restored after its admission.
  const bool restored = at.restore_asked_ns != 0;
  const bool in_queue = restored && (at.admitted_ns == 0 || at.restore_asked_ns < at.admitted_ns);
  if (in_queue) add_restore(true);
  if (at.admitted_ns == 0) return stages;
  add(Kind::kPrefill, at.admitted_ns, EndOr(at.first_token_ns, at.finished_ns));
  if (at.first_token_ns != 0) {
    add(Kind::kDecode, at.first_token_ns, EndOr(at.last_token_ns, at.finished_ns));
  }
  if (restored && !in_queue) {
    after_ns = at.admitted_ns;  // it may lie within the prefill
    add_restore(false);
  }
  return stages;
}

int64_t NumSpans(const RequestRecord& record) {
  return 1 + static_cast<int64_t>(StagesOf(record).size());
}

}  // namespace quire

// States and times.
#include "server/jobs/job_codec.h"

#include <chrono>

#include "quire/v1/jobs.pb.h"

namespace quire {
namespace {

void EncodeTime(int64_t ns, google::protobuf::Timestamp* out) {
  out->set_seconds(ns / 1'000'000'000);
  out->set_nanos(static_cast<int32_t>(ns % 1'000'000'000));
}

v1::Job::State WirePhase(JobPhase phase) {
  switch (phase) {
    case JobPhase::kRunning: return v1::Job::STATE_RUNNING;
    case JobPhase::kCompleted: return v1::Job::STATE_COMPLETED;
    case JobPhase::kCancelled: return v1::Job::STATE_CANCELLED;
    case JobPhase::kFailed: return v1::Job::STATE_FAILED;
  }
  return v1::Job::STATE_UNSPECIFIED;
}

}  // namespace

int64_t JobClockNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void EncodeJob(const Job& job, v1::Job* out) {
  const JobState& state = job.state;
  out->set_job_id(state.id);
  out->set_state(WirePhase(state.phase));
  if (state.priority.has_value()) out->mutable_options()->set_priority(*state.priority);
  out->mutable_options()->set_expires_after_seconds(state.expires_after_seconds);
  out->set_lines(state.lines);
  out->set_done_lines(job.done_lines);
  out->set_failed_lines(job.failed_lines);
  out->set_input_bytes(static_cast<uint64_t>(state.input_bytes));
  out->set_result_bytes(static_cast<uint64_t>(job.result_bytes));
  EncodeTime(state.created_ns, out->mutable_created_at());
  EncodeTime(state.expires_ns(), out->mutable_expires_at());
  if (state.ended_ns != 0) EncodeTime(state.ended_ns, out->mutable_ended_at());
  if (!state.failure.empty()) out->set_failure(state.failure);
}

}  // namespace quire

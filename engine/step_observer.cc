// Sampling and drawing.
#include "engine/step_observer.h"

#include <algorithm>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/timeline.h"

namespace quire {
namespace {

// A timed step runs uncaptured and takes longer by its launches, so few steps are timed.
constexpr int64_t kSampleEveryNs = 2'000'000'000;
constexpr int64_t kSampleEveryNsOnTimeline = 500'000'000;

}  // namespace

StepWatch StepObserver::NextWatch(int64_t now_ns, int in_flight) {
  StepWatch watch;
  const int64_t every_ns = Timeline::on() ? kSampleEveryNsOnTimeline : kSampleEveryNs;
  next_sample_ns_ = std::min(next_sample_ns_, now_ns + every_ns);
  watch.timed = in_flight > 0 && !timed_in_flight_ && now_ns >= next_sample_ns_;
  if (watch.timed) {
    next_sample_ns_ = now_ns + every_ns;
    timed_in_flight_ = true;
  }
  if (steps_to_profile_.load(std::memory_order_relaxed) > 0) {
    steps_to_profile_.fetch_sub(1, std::memory_order_relaxed);
    watch.recorded = true;
    watch.uncaptured = profile_uncaptured_.load(std::memory_order_relaxed);
  }
  return watch;
}

void StepObserver::ProfileSteps(int32_t steps, bool uncaptured) {
  profile_uncaptured_.store(uncaptured, std::memory_order_relaxed);
  steps_to_profile_.store(steps, std::memory_order_relaxed);
}

void StepObserver::OnStep(Transport& transport, const PublishedStep& step) {
  if (step.watch.timed) timed_in_flight_ = false;
  if (!step.watch.timed && !Timeline::on()) return;
  for (int32_t rank = 0; const StepResult* result = transport.ResultOf(rank); ++rank) {
    if (static_cast<size_t>(rank) == sampled_.size()) {
      sampled_.emplace_back();
      finished_ns_.push_back(0);
    }
    if (!result->parts.empty()) {
      sampled_[static_cast<size_t>(rank)].Add(SumOf(result->parts), step.rows, step.tokens);
    }
    if (Timeline::on()) Draw(rank, *result, step);
  }
}

// The host knows when a step was enqueued and when its result came. A step that is not timed begins
// on the device when it was enqueued or when the step before it ended.
void StepObserver::Draw(int32_t rank, const StepResult& result, const PublishedStep& step) {
  int64_t& last_ns = finished_ns_[static_cast<size_t>(rank)];
  const auto number = static_cast<int64_t>(result.step);
  Timeline::Add({.track = Timeline::Track::kRankHost,
                 .lane = rank,
                 .name = "enqueue",
                 .begin_ns = result.started_ns,
                 .end_ns = result.enqueued_ns,
                 .args = {{{"step", number}}}});
  int64_t begin_ns = std::max(result.started_ns, last_ns);
  if (!result.parts.empty()) {
    int64_t busy_ns = 0;
    for (const PartTime& part : result.parts) {
      if (part.part != StepPart::kIdle) busy_ns += part.ns;
    }
    begin_ns = std::max(result.finished_ns - busy_ns, last_ns);
  }
  Timeline::Add({.track = Timeline::Track::kRankDevice,
                 .lane = rank,
                 .name = step.watch.timed  ? "timed step"
                         : step.captured() ? "replayed step"
                                           : "step",
                 .begin_ns = begin_ns,
                 .end_ns = result.finished_ns,
                 .args = {{{"step", number},
                           {"rows", step.rows},
                           {"tokens", step.tokens},
                           {"prompt_tokens", step.prompt_tokens}}}});
  for (int64_t at_ns = begin_ns; const PartTime& part : result.parts) {
    if (part.part == StepPart::kIdle) continue;
    const int64_t end_ns = std::min(at_ns + part.ns, result.finished_ns);
    Timeline::Add({.track = Timeline::Track::kRankDevice,
                   .lane = rank,
                   .name = Name(part.part),
                   .begin_ns = at_ns,
                   .end_ns = end_ns});
    at_ns = end_ns;
  }
  last_ns = result.finished_ns;
}

void StepObserver::OnCopyStart(const CopyJob& job) { copies_.push_back({job.job, job.direction}); }

void StepObserver::OnCopyEnd(const CopyAck& ack, int64_t now_ns) {
  const auto copy = std::ranges::find(copies_, ack.job, &CopyInFlight::job);
  if (copy == copies_.end()) return;
  const bool store = copy->direction == CopyDirection::kStore;
  copies_.erase(copy);
  int64_t& last_ns = copied_ns_[store ? 0 : 1];
  Timeline::Add({.track = store ? Timeline::Track::kStores : Timeline::Track::kLoads,
                 .name = store ? "store" : "load",
                 .begin_ns = std::max(now_ns - ack.ns, last_ns),
                 .end_ns = now_ns,
                 .args = {{{"blocks", ack.num_good}, {"bytes", ack.bytes}}}});
  last_ns = now_ns;
}

void StepObserver::OnLateCopies(const TieringStats& stats) {
  if (stats.late_jobs == std::exchange(late_copies_, stats.late_jobs)) return;
  Log(Severity::kWarning, "a copy of KV is late; the sequences that wait for it go on without it",
      {{"late", stats.late_jobs}, {"copying", stats.jobs_in_flight}});
}

void StepObserver::OnRecovery() {
  timed_in_flight_ = false;
  copies_.clear();
}

}  // namespace quire

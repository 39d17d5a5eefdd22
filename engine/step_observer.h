// StepObserver: decides which steps are timed by parts, sums what they tell, and draws steps and
// copies into the timeline. The scheduler thread is its only user, ProfileSteps aside.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/values/cache_stats.h"
#include "engine/values/copy_plan.h"
#include "engine/values/step_plan.h"
#include "engine/values/step_times.h"
#include "engine/worker/transport.h"

namespace quire {

// The facts of a step that are known when it is published.
struct PublishedStep {
  int32_t rows = 0;
  int32_t tokens = 0;
  int32_t prompt_tokens = 0;
  int32_t graph_size = 0;  // 0: not captured
  int64_t published_ns = 0;
  StepWatch watch;
  bool captured() const { return graph_size > 0 && !watch.timed && !watch.uncaptured; }
};

class StepObserver {
 public:
  // How the next step is to be watched. `in_flight`: steps published before it whose results have
  // not come. Only a step behind another one is timed: before any other, the device is idle because
  // there was no work.
  StepWatch NextWatch(int64_t now_ns, int in_flight);
  // The step of Transport::Poll has retired.
  void OnStep(Transport& transport, const PublishedStep& step);
  // A copy job was sent, and its ack has come.
  void OnCopyStart(const CopyJob& job);
  void OnCopyEnd(const CopyAck& ack, int64_t now_ns);
  // Logs each copy that is late once: a stalled worker process is restarted, a thread cannot be.
  void OnLateCopies(const TieringStats& stats);
  // The steps and copies in flight are forgotten.
  void OnRecovery();

  // Attached profilers record the next `steps` steps. `uncaptured`: their operations are enqueued
  // one by one, so that the ranges of layers show. Any thread.
  void ProfileSteps(int32_t steps, bool uncaptured);

  // By rank.
  const std::vector<SampledSteps>& sampled() const { return sampled_; }

 private:
  struct CopyInFlight {
    uint64_t job = 0;
    CopyDirection direction = CopyDirection::kStore;
  };

  void Draw(int32_t rank, const StepResult& result, const PublishedStep& step);

  int64_t next_sample_ns_ = std::numeric_limits<int64_t>::max();  // the first plan sets it
  bool timed_in_flight_ = false;
  std::vector<SampledSteps> sampled_;
  std::vector<int64_t> finished_ns_;  // by rank, of the last step
  std::vector<CopyInFlight> copies_;
  int64_t late_copies_ = 0;    // that were logged
  int64_t copied_ns_[2] = {};  // by CopyDirection, end of the last job
  std::atomic<int32_t> steps_to_profile_{0};
  std::atomic<bool> profile_uncaptured_{false};
};

}  // namespace quire

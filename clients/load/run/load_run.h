// LoadRun: one run's threads and their order: a planner that prepares requests ahead of time, the
// pacer that sends them, gRPC's threads that read, and the caller's thread, which looks once a
// second.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <stop_token>
#include <string>
#include <unordered_set>
#include <vector>

#include "clients/load/run/metrics_scraper.h"
#include "clients/load/run/pacer.h"
#include "clients/load/run/progress.h"
#include "clients/load/run/session_calls.h"
#include "clients/load/run/stream.h"
#include "clients/load/run/tally.h"
#include "clients/load/run/target.h"
#include "clients/load/values/latency_histogram.h"
#include "clients/load/values/run_record.h"
#include "clients/load/values/settings.h"
#include "clients/load/workload/workload.h"

namespace quire::load {

class LoadRun final : public StreamEnds {
 public:
  // The arguments outlive it. Execute may be called once.
  LoadRun(const Settings& settings, Workload* workload, Target* target);

  // Blocks until every stream has ended. The record without RunInfo.
  RunRecord Execute(std::stop_token stop, std::ostream* progress);

 private:
  // The warm-up, or the measured part.
  struct Phase {
    bool warmup = false;
    int64_t count = 0;
    int64_t start_ns = 0;
    int64_t plan_until_ns = SendQueue::kNever;  // no closed loop's request or later turn after it
    bool closed = false;
  };
  // Turns that ended and may be followed by others: the planner's work besides the next request.
  using EndedTurns = std::deque<std::shared_ptr<Stream>>;

  Phase MakePhase(bool warmup) const;
  SendQueue MakeQueue(const Phase& phase) const;
  void RunPhase(const Phase& phase, std::stop_token stop);
  void Watch(std::stop_token stop);
  void Tick(int64_t now_ns);
  void CheckServer();
  void End(RunEnd end, const std::string& reason);

  // The planner's thread.
  void Plan();
  void PlanNext();
  void PlanTurnsAfter(const std::shared_ptr<Stream>& ended);
  // On the planner's thread, or on one of gRPC's when a fork was answered.
  void GoOn(const Stream& ended, std::vector<PlannedRequest> turns);
  void Enqueue(PlannedRequest request);
  bool MayPlanNext() const;  // requires mutex_

  // The pacer's thread.
  void Send(EligibleSend eligible);
  bool Drop(const EligibleSend& eligible);

  void OnEnd(std::shared_ptr<Stream> stream) override;
  void LeaveFamily(int64_t family, int32_t more);
  void CloseUnsent(const PlannedRequest& plan);
  bool AllDone() const;     // requires mutex_
  void LeaveOutstanding();  // requires mutex_
  RunRecord Finish();
  std::vector<RequestRecord> TakeRequests();

  int64_t Now() const { return NowNs() - run_.base_ns; }

  const Settings& settings_;
  Workload* const workload_;
  Target* const target_;
  Tally tally_;
  RunState run_;
  MetricsScraper scraper_;
  Progress* progress_ = nullptr;

  std::mutex mutex_;
  std::condition_variable planner_wakes_, watcher_wakes_;
  // Guarded by mutex_ from here.
  Phase phase_;
  int64_t next_ = 0;           // of the phase's requests, to be prepared
  int64_t unsent_ = 0;         // prepared, not sent: first turns only
  int64_t unsent_tokens_ = 0;  // of their prompts
  int64_t outstanding_ = 0;    // prepared, not ended; or ended with turns to follow
  EndedTurns ended_turns_;
  std::deque<RequestRecord> records_;
  std::unordered_set<std::shared_ptr<Stream>> live_;  // prepared, not ended
  std::map<int64_t, int32_t> family_turns_;           // live or planned turns of each conversation
  // To here.

  std::unique_ptr<Pacer> pacer_;
  LatencyHistogram lags_;  // the pacer's thread
  RunEnd end_ = RunEnd::kCompleted;
  std::string end_reason_;
  std::vector<TimelinePoint> timeline_;
  Tally::Totals last_totals_;
  double cpu_seconds_ = 0, wall_seconds_ = 0;
  std::unique_ptr<SessionCalls> sessions_;  // null without sessions; last: its answers use all this
};

}  // namespace quire::load

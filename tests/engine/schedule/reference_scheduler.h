// ReferenceScheduler: the scheduling policy once more, in slow and obvious code that shares nothing
// with the real one: a list of requests, everything counted anew from it at every call, blocks as
// numbers only. Run in lockstep with the real scheduler it must make the same decisions.
#pragma once

#include <deque>
#include <list>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {

class ReferenceScheduler {
 public:
  struct End {
    RequestId id;
    FinishReason reason;
    bool operator==(const End&) const = default;
  };

  ReferenceScheduler(const SchedulerConfig& config, int32_t eos_token)
      : config_(config), eos_token_(eos_token) {}

  void Add(RequestId id, const RequestSpec& spec);
  std::vector<End> Cancel(RequestId id, FinishReason reason);
  std::vector<End> CancelAll(FinishReason reason);
  std::vector<End> ExpireDeadlines(int64_t now_ns);
  // The next step; empty if there is none.
  std::vector<Share> Schedule();
  // One sample per sampling share of the oldest step, in order.
  std::vector<End> Retire(const std::vector<SampledToken>& samples);
  std::vector<End> KillWorker();

  SchedulerLoad Load() const;
  // How often the rarer rules spoke.
  int32_t preempted() const { return preempted_; }
  int32_t num_blocked_queues() const { return num_blocked_queues_; }
  int32_t num_aged_prefills() const { return num_aged_prefills_; }
  int32_t num_spared() const { return num_spared_; }
  // Tokens that can still be computed if nothing more arrives: bounds the steps to the end.
  int64_t WorkLeft() const;

 private:
  enum Place { kWaiting, kRunning, kEnded };
  struct Entry {
    RequestId id;
    RequestSpec spec;
    int64_t number;
    int32_t end;
    Place place = kWaiting;
    int32_t known, planned = 0, sampling = 0, flights = 0;
    int32_t blocks = 0, promised = 0;
    int32_t preemptions = 0, deaths = 0, bypassed = 0, unserved = 0;
    int32_t Left() const { return known + sampling - planned; }
  };
  struct Flight {
    Entry* entry;
    bool sample;
  };

  static bool Before(const Entry* a, const Entry* b);
  std::vector<Entry*> InOrder(Place place);
  int32_t Free() const;
  int32_t Promised() const;
  int32_t Draining() const;
  int32_t Rows() const;
  bool Grow(Entry& entry, int32_t& claims, bool& preempted);
  void Preempt(Entry& entry);
  void TryToEmpty(Entry& entry);
  End Finish(Entry& entry, FinishReason reason);
  bool Stops(const Entry& entry, int32_t token, FinishReason& reason) const;
  void Prefill(std::vector<Entry*> prefills, bool preempted, int32_t budget);
  void Commit();

  const SchedulerConfig config_;
  const int32_t eos_token_;
  std::list<Entry> entries_;
  std::deque<std::vector<Flight>> flights_;
  std::vector<std::pair<Entry*, int32_t>> chosen_;
  int64_t next_number_ = 0;
  int32_t preempted_ = 0;
  int32_t num_blocked_queues_ = 0;
  int32_t num_aged_prefills_ = 0;
  int32_t num_spared_ = 0;
};

}  // namespace quire

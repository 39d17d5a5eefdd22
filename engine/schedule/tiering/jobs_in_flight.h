// JobsInFlight: the copy jobs that were sent and not yet acked, each with its copies, its deadline,
// and whether it is late. A late job still owns its blocks and pages: only its ack, or the end of
// the workers, gives them back. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/schedule/tiering/copy_tasks.h"
#include "engine/values/copy_plan.h"

namespace quire {

class PrefixTree;

struct JobInFlight {
  CopyDirection direction = CopyDirection::kStore;
  std::vector<TaskCopy> copies;  // in the job's order; those of a task are neighbours
  int64_t deadline_ns = 0;
  bool late = false;
};

class JobsInFlight {
 public:
  explicit JobsInFlight(int64_t timeout_ns) : timeout_ns_(timeout_ns) {}

  int32_t size() const { return static_cast<int32_t>(jobs_.size()); }
  // Fewer than CopyJob::kMaxInFlight jobs of this direction are in flight.
  bool CanSend(CopyDirection direction) const;
  bool HasLate(CopyDirection direction) const;
  int64_t NextDeadline() const;  // of the jobs that are not late; kNoDeadline: none

  // Adds a job that is sent now. Returns its number, consecutive from 1.
  uint64_t Add(CopyDirection direction, const std::vector<TaskCopy>& copies, int64_t now_ns);
  // Takes a job out; nullopt if there is none of that number.
  std::optional<JobInFlight> Take(uint64_t job);
  // Takes out any job; nullopt if there is none.
  std::optional<JobInFlight> TakeAny();
  // Marks a job that has passed its deadline as late, and returns it; null if there is none left.
  const JobInFlight* MarkLate(int64_t now_ns);
  // Numbers begin again at 1. Requires that no job is in flight.
  void Restart();

  // Adds the copies in flight of each task to `in_flight`, by ticket; aborts when a copy's node, or
  // its block or page, is not as a copy needs it. O(copies in flight).
  void CheckInvariants(const PrefixTree& tree, std::map<uint64_t, int32_t>& in_flight) const;

 private:
  const int64_t timeout_ns_;
  std::map<uint64_t, JobInFlight> jobs_;  // by number: oldest first
  uint64_t last_job_ = 0;
};

}  // namespace quire

// A map of jobs; there are at most two directions times CopyJob::kMaxInFlight of them.
#include "engine/schedule/tiering/jobs_in_flight.h"

#include <algorithm>
#include <utility>

#include "engine/schedule/kv/prefix_tree.h"
#include "kernels/check.h"

namespace quire {

bool JobsInFlight::CanSend(CopyDirection direction) const {
  int32_t count = 0;
  for (const auto& [number, job] : jobs_) count += job.direction == direction;
  return count < CopyJob::kMaxInFlight;
}

bool JobsInFlight::HasLate(CopyDirection direction) const {
  return std::ranges::any_of(jobs_, [direction](const auto& entry) {
    return entry.second.late && entry.second.direction == direction;
  });
}

int64_t JobsInFlight::NextDeadline() const {
  int64_t next = kNoDeadline;
  for (const auto& [number, job] : jobs_) {
    if (!job.late) next = std::min(next, job.deadline_ns);
  }
  return next;
}

uint64_t JobsInFlight::Add(CopyDirection direction, const std::vector<TaskCopy>& copies,
                           int64_t now_ns) {
  jobs_[++last_job_] = {direction, copies, now_ns + timeout_ns_, false};
  return last_job_;
}

std::optional<JobInFlight> JobsInFlight::Take(uint64_t job) {
  auto node = jobs_.extract(job);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

std::optional<JobInFlight> JobsInFlight::TakeAny() {
  if (jobs_.empty()) return std::nullopt;
  return Take(jobs_.begin()->first);
}

const JobInFlight* JobsInFlight::MarkLate(int64_t now_ns) {
  for (auto& [number, job] : jobs_) {
    if (job.late || now_ns < job.deadline_ns) continue;
    job.late = true;
    return &job;
  }
  return nullptr;
}

void JobsInFlight::Restart() {
  CHECK(jobs_.empty());
  last_job_ = 0;
}

void JobsInFlight::CheckInvariants(const PrefixTree& tree,
                                   std::map<uint64_t, int32_t>& in_flight) const {
  std::vector<BlockId> blocks;
  std::vector<PageId> pages;
  int32_t jobs[2] = {0, 0};
  for (const auto& [number, job] : jobs_) {
    const bool load = job.direction == CopyDirection::kLoad;
    ++jobs[load];
    CHECK(number <= last_job_ && !job.copies.empty());
    for (const TaskCopy& copy : job.copies) {
      const NodeKv& kv = tree.Kv(copy.node);
      CHECK(tree.Held(copy.node) && (load ? kv.loading : kv.storing));
      CHECK((copy.kind == TaskKind::kStore) == !load);
      blocks.push_back(kv.block);
      pages.push_back(kv.page);
      ++in_flight[copy.ticket];
    }
  }
  CHECK(jobs[0] <= CopyJob::kMaxInFlight && jobs[1] <= CopyJob::kMaxInFlight);
  const auto disjoint = [](auto& ids) {
    std::sort(ids.begin(), ids.end());
    CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
  };
  disjoint(blocks);
  disjoint(pages);
}

}  // namespace quire

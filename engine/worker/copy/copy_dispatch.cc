// Sending jobs, checking and joining acks.
#include "engine/worker/copy/copy_dispatch.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/base/clock.h"
#include "kernels/check.h"

namespace quire {

CopyDispatch::CopyDispatch(const std::vector<CopyRings>& ranks, int64_t block_bytes)
    : block_bytes_(block_bytes), rings_(ranks) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    for (const CopyRings& rings : ranks) {
      lanes_[i].ranks.push_back({rings.jobs(kCopyDirections[i]), rings.acks(kCopyDirections[i])});
    }
  }
}

bool CopyDispatch::Submit(const CopyJob& job) {
  Lane& lane = lanes_[job.direction == kCopyDirections[0] ? 0 : 1];
  if (lane.ranks.empty() || !fault_.empty()) return false;
  CHECK_LT(lane.sent - lane.joined, lane.jobs.size());
  CHECK(!job.copies.empty() && job.copies.size() <= size_t{CopyJob::kMaxCopies});
  message_.job = job.job;
  message_.count = static_cast<int32_t>(job.copies.size());
  std::copy(job.copies.begin(), job.copies.end(), message_.copies);
  lane.jobs[lane.sent % lane.jobs.size()] = {job.job, message_.count, SteadyNowNs()};
  Send(lane);
  ++lane.sent;
  return true;
}

// The slot is free: every rank has answered, hence read, the job that was there.
void CopyDispatch::Send(Lane& lane) {
  for (Rank& rank : lane.ranks) {
    std::memcpy(rank.jobs.slot(lane.sent).data(), &message_, sizeof message_);
    rank.jobs.Publish();
  }
}

int32_t CopyDispatch::ready_pages() const {
  int32_t ready = rings_.empty() ? 0 : std::numeric_limits<int32_t>::max();
  for (const CopyRings& rings : rings_) {
    ready = std::min(ready, rings.ready_pages().load(std::memory_order_acquire));
  }
  return ready;
}

void CopyDispatch::End() {
  message_.count = 0;
  for (Lane& lane : lanes_) Send(lane);
}

bool CopyDispatch::Poll(CopyAck& ack) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (PollLane(lanes_[i], kCopyDirections[i] == CopyDirection::kLoad, ack)) return true;
  }
  return false;
}

bool CopyDispatch::PollLane(Lane& lane, bool loading, CopyAck& ack) {
  if (lane.joined == lane.sent || !AllHaveAcked(lane)) return false;
  const Sent& sent = lane.jobs[lane.joined % lane.jobs.size()];
  ack = {.job = sent.job, .num_good = sent.count};
  for (const Rank& rank : lane.ranks) {
    CopyAck one;
    std::memcpy(&one, rank.acks.slot(lane.joined).data(), sizeof one);
    if (const std::string what = FaultOf(one, sent, loading); !what.empty()) {
      fault_ = "rank " + std::to_string(&rank - lane.ranks.data()) + " answered " + what +
               " to copy job " + std::to_string(sent.job);
      return false;
    }
    ack.status = Worse(ack.status, one.status);
    ack.num_good = std::min(ack.num_good, one.num_good);
    ack.bytes += one.bytes;
    ack.ns = std::max(ack.ns, one.ns);
  }
  ++lane.joined;
  return true;
}

bool CopyDispatch::AllHaveAcked(const Lane& lane) {
  if (!fault_.empty()) return false;
  for (const Rank& rank : lane.ranks) {
    const uint64_t acked = rank.acks.published();
    if (acked <= lane.joined) return false;
    if (acked <= lane.sent) continue;
    fault_ = "rank " + std::to_string(&rank - lane.ranks.data()) + " says that it did " +
             std::to_string(acked) + " of " + std::to_string(lane.sent) + " copy jobs";
    return false;
  }
  return true;
}

std::string CopyDispatch::FaultOf(const CopyAck& ack, const Sent& sent, bool loading) const {
  if (ack.job != sent.job) return "as to job " + std::to_string(ack.job);
  if (ack.status > CopyStatus::kCorrupt) return "with no status";
  if (ack.status == CopyStatus::kCorrupt && !loading) return "that a page to be written is corrupt";
  const int32_t most = ack.status == CopyStatus::kOk       ? sent.count
                       : ack.status == CopyStatus::kFailed ? 0
                                                           : sent.count - 1;
  const int32_t least = ack.status == CopyStatus::kCorrupt ? 0 : most;
  if (ack.num_good < least || ack.num_good > most) {
    return "with " + std::to_string(ack.num_good) + " good copies";
  }
  if (ack.bytes != ack.num_good * block_bytes_) {
    return "with " + std::to_string(ack.bytes) + " bytes";
  }
  // The copy rates are computed from this time: refuse an impossible one.
  if (ack.ns < 0 || ack.ns > SteadyNowNs() - sent.at_ns) {
    return "with " + std::to_string(ack.ns) + " ns";
  }
  return "";
}

}  // namespace quire

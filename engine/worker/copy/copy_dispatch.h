// CopyDispatch: the scheduler's side of copies: sends each job to every rank and joins the acks.
// Checks every ack against its job before it uses it. Scheduler thread only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/worker/shm/copy_rings.h"

namespace quire {

class CopyDispatch {
 public:
  // No ranks: there is no host memory to copy to. `block_bytes` are one rank's.
  CopyDispatch(const std::vector<CopyRings>& ranks, int64_t block_bytes);

  // See Transport::Submit; false where there is no host memory, and after a fault.
  bool Submit(const CopyJob& job);
  // The next job that all ranks have acked; false if there is none.
  bool Poll(CopyAck& ack);
  // Pages of host memory, from the first, that every rank has made ready. Any value: ranks may be
  // other processes, which this does not trust.
  int32_t ready_pages() const;
  // The ranks stop copying once the jobs already sent are done. No Submit may follow.
  void End();
  // Which ack of which rank was impossible; empty if none was.
  const std::string& fault() const { return fault_; }

 private:
  struct Sent {
    uint64_t job = 0;
    int32_t count = 0;
    int64_t at_ns = 0;
  };
  struct Rank {
    SharedRing jobs, acks;
  };
  struct Lane {
    std::vector<Rank> ranks;
    std::array<Sent, CopyJob::kMaxInFlight> jobs;  // a ring
    uint64_t sent = 0;
    uint64_t joined = 0;
  };

  void Send(Lane& lane);
  bool PollLane(Lane& lane, bool loading, CopyAck& ack);
  bool AllHaveAcked(const Lane& lane);
  // The fault of an ack; empty: none.
  std::string FaultOf(const CopyAck& ack, const Sent& sent, bool loading) const;

  const int64_t block_bytes_;
  const std::vector<CopyRings> rings_;  // by rank
  std::array<Lane, 2> lanes_;           // in the order of kCopyDirections
  CopyJobMessage message_;
  std::string fault_;
};

}  // namespace quire

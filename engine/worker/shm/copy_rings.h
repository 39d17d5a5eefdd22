// CopyRings: the memory that the scheduler's side and one rank share for copies: for each direction
// a ring of jobs and a ring of acks, and the number of pages that are ready. A view: it does not
// own the memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/values/copy_plan.h"
#include "engine/worker/shm/shared_ring.h"

namespace quire {

class CopyRings {
 public:
  // Bytes the rings take, a multiple of 64. Their memory begins zeroed, at a multiple of 64.
  static int64_t Bytes();

  explicit CopyRings(std::byte* memory) : memory_(memory) {}

  // Each direction's writer and reader keep the rings they get here.
  SharedRing jobs(CopyDirection direction) const;
  SharedRing acks(CopyDirection direction) const;
  // Pages of the rank's arena, from the first, that it has made ready (CopyRunner::PrepareNext).
  // The rank writes, the scheduler's side reads.
  std::atomic<int32_t>& ready_pages() const;

 private:
  std::byte* memory_;
};

// A job in the ring. A job without copies is the last message.
struct CopyJobMessage {
  uint64_t job = 0;
  int32_t count = 0;
  BlockCopy copies[CopyJob::kMaxCopies];
};

inline constexpr CopyDirection kCopyDirections[] = {CopyDirection::kLoad, CopyDirection::kStore};

// The status of a job whose two parts ended with `a` and `b`.
inline CopyStatus Worse(CopyStatus a, CopyStatus b) {
  return a == CopyStatus::kFailed || b == CopyStatus::kOk ? a : b;
}

}  // namespace quire

// CopyRings: what the scheduler's side and one rank share for copies: in each direction a ring of
// jobs and a ring of acks. A view: the memory is somebody else's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/values/copy_plan.h"
#include "engine/worker/shm/shared_ring.h"

namespace quire {

class CopyRings {
 public:
  // Memory it takes, a multiple of 64; it begins at a multiple of 64, as zeros.
  static int64_t Bytes();

  explicit CopyRings(std::byte* memory) : memory_(memory) {}

  // Each direction's writer and reader keep the rings they get here.
  SharedRing jobs(CopyDirection direction) const;
  SharedRing acks(CopyDirection direction) const;

 private:
  std::byte* memory_;
};

// A job as it travels. One without copies is the last.
struct CopyJobMessage {
  uint64_t job = 0;
  int32_t count = 0;
  BlockCopy copies[CopyJob::kMaxCopies];
};

inline constexpr CopyDirection kCopyDirections[] = {CopyDirection::kLoad, CopyDirection::kStore};

// What two parts of a job make of it.
inline CopyStatus Worse(CopyStatus a, CopyStatus b) {
  return a == CopyStatus::kFailed || b == CopyStatus::kOk ? a : b;
}

}  // namespace quire

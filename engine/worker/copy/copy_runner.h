// CopyRunner: executes copies between blocks and pages on one rank: PoolCopies (a real pool and a
// real arena).
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "engine/values/copy_plan.h"

namespace quire {

// The two directions are independent; each is called from a thread of its own.
class CopyRunner {
 public:
  // Most batches of one direction between Begin and Finish.
  static constexpr int kMaxBegun = 2 * CopyJob::kMaxInFlight;

  static constexpr int32_t kAllPages = std::numeric_limits<int32_t>::max();

  // The end of a batch: of kCorrupt the first `num_good` copies are done, of kFailed none.
  struct Outcome {
    CopyStatus status = CopyStatus::kOk;
    int32_t num_good = 0;
  };

  virtual ~CopyRunner() = default;
  // Bytes of one copy.
  virtual int64_t block_bytes() const = 0;
  // Makes the next few pages of host memory ready: copies of them run at full speed and allocate
  // nothing. Returns how many pages, from the first, are ready. A third thread calls it until it
  // returns kAllPages. Takes milliseconds, beside the copies of pages that are ready.
  virtual int32_t PrepareNext() { return kAllPages; }
  // Begins a batch behind the earlier ones of its direction. Copies `copies`. Aborts on blocks or
  // pages that do not exist.
  virtual void Begin(CopyDirection direction, std::span<const BlockCopy> copies) = 0;
  // Waits for the oldest batch of this direction.
  virtual Outcome Finish(CopyDirection direction) = 0;
};

}  // namespace quire

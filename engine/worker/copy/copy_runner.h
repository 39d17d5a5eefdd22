// CopyRunner: something that executes copies between blocks and pages on one rank: PoolCopies (a
// real pool and a real arena), the ShadowWorker.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "engine/values/copy_plan.h"

namespace quire {

// The two directions know nothing of each other, and each is called from a thread of its own.
class CopyRunner {
 public:
  // Batches of one direction that may be begun and not finished.
  static constexpr int kMaxBegun = 2 * CopyJob::kMaxInFlight;

  // What became of a batch; of kCorrupt the copies before `num_good` are there, of kFailed none.
  struct Outcome {
    CopyStatus status = CopyStatus::kOk;
    int32_t num_good = 0;
  };

  virtual ~CopyRunner() = default;
  // Of one copy.
  virtual int64_t block_bytes() const = 0;
  // Takes the time that it takes to make copies fast, of pages that are used and of some more; they
  // are made before it and meanwhile too. At the beginning, and again when others have begun.
  // Returns early once `stop` is set. On a third thread.
  virtual void Prepare(const std::atomic<bool>& /*stop*/) {}
  // Begins a batch, behind those of its direction. `copies` may go when this returns. Aborts on
  // blocks or pages that do not exist.
  virtual void Begin(CopyDirection direction, std::span<const BlockCopy> copies) = 0;
  // Waits for the oldest batch of this direction.
  virtual Outcome Finish(CopyDirection direction) = 0;
};

}  // namespace quire

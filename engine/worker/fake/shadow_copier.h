// ShadowCopier: moves a ShadowWorker's KV to pages of host memory and back, for tests of whoever
// makes copy jobs. It copies at the worst time it may: what is written is scribbled over as soon as
// the job is there, and the bytes are read at its very beginning or at its very end, by hash. So a
// block that was given away too early, a page read before it is ready, or one that was reused while
// somebody still counted on it ends as a foreign hash in a slot, which the worker recognises.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "engine/values/copy_plan.h"
#include "engine/worker/fake/shadow_worker.h"

namespace quire {

struct ShadowFaults {
  uint64_t seed = 1;
  double fail = 0;     // of each job to fail, with garbage where it should have written
  double corrupt = 0;  // of each page to be found damaged when it is loaded, and to be garbage
};

class ShadowCopier {
 public:
  ShadowCopier(int32_t num_pages, int32_t block_size, const ShadowFaults& faults = {});

  // Takes a job. Requires fewer than CopyJob::kMaxInFlight of its direction in flight.
  void Submit(const CopyJob& job, ShadowWorker& worker);
  int32_t in_flight(CopyDirection direction) const;
  // Ends the oldest job of a direction, which there is.
  CopyAck Finish(CopyDirection direction, ShadowWorker& worker);
  // The worker is gone: no job is acked any more, and pages being written hold garbage.
  void Die();
  // What the first bad job did wrong; empty if there was none.
  const std::string& violation() const { return violation_; }

 private:
  struct Flight {
    CopyJob job;
    bool early = false;             // read at its beginning
    std::vector<uint64_t> content;  // what was read, if early
  };

  void Require(bool ok, const char* what);
  void CheckJob(const CopyJob& job);
  bool InUse(const CopyJob& job, const BlockCopy& copy) const;
  bool Happens(double probability);
  std::span<uint64_t> Page(PageId page);
  void Scribble(std::span<uint64_t> slots);
  void Read(const CopyJob& job, ShadowWorker& worker, std::vector<uint64_t>& content);
  void Write(const Flight& flight, int32_t num_good, ShadowWorker& worker);

  const int32_t block_size_;
  const ShadowFaults faults_;
  std::mt19937_64 random_;
  std::vector<uint64_t> pages_;                // [page][offset]
  std::array<std::deque<Flight>, 2> flights_;  // by direction, oldest first
  uint64_t last_job_ = 0;
  std::string violation_;
};

}  // namespace quire

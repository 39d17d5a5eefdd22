// ShadowCopier: moves a ShadowWorker's KV to pages of host memory and back, for tests of code that
// makes copy jobs. It copies at the worst time allowed: it fills the target with garbage as soon as
// the job arrives, and reads the source at the very beginning or the very end, decided by hash. A
// block released too early, a page read before its ack, or a page reused while still in use
// therefore ends as a foreign hash in a slot, which the worker reports.
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
  double fail = 0;     // probability of a job to fail and leave garbage in its target
  double corrupt = 0;  // probability of a page to be found corrupt when loaded, and left as garbage
};

class ShadowCopier {
 public:
  ShadowCopier(int32_t num_pages, int32_t block_size, const ShadowFaults& faults = {});

  // Takes a job. Requires fewer than CopyJob::kMaxInFlight of its direction in flight.
  void Submit(const CopyJob& job, ShadowWorker& worker);
  int32_t in_flight(CopyDirection direction) const;
  // Ends the oldest job of a direction. Requires one in flight.
  CopyAck Finish(CopyDirection direction, ShadowWorker& worker);
  // The worker is gone: no further job is acked, and pages being written hold garbage.
  void Die();
  // The fault of the first bad job; empty if there was none.
  const std::string& violation() const { return violation_; }

 private:
  struct Flight {
    CopyJob job;
    bool early = false;             // read at its beginning
    std::vector<uint64_t> content;  // the bytes read, if early
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

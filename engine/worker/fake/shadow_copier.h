// ShadowCopier: moves a ShadowWorker's KV to pages of host memory and back, for tests of code that
// makes copy jobs. It copies at the worst time allowed: Submit fills the target with garbage, and
// the source is read in Submit or in Finish, chosen at random. If the caller frees a block too
// early, reads a page before its ack, or reuses a page in use, a slot then holds the hash of other
// tokens, and the ShadowWorker reports the mismatch. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/values/copy_plan.h"
#include "engine/worker/fake/shadow_worker.h"

namespace quire {

struct ShadowFaults {
  uint64_t seed = 1;
  double fail = 0;     // probability that a job fails and leaves garbage in its target
  double corrupt = 0;  // probability that a load finds a page corrupt, which then holds garbage
};

class ShadowCopier {
 public:
  ShadowCopier(int32_t num_pages, int32_t block_size, const ShadowFaults& faults = {});

  // Takes a job. Requires fewer than CopyJob::kMaxInFlight of its direction in flight.
  void Submit(const CopyJob& job, ShadowWorker& worker);
  int32_t in_flight(CopyDirection direction) const;
  // Ends the oldest job of a direction. Requires one in flight.
  CopyAck Finish(CopyDirection direction, ShadowWorker& worker);
  // Simulates the death of the worker: drops all jobs without acks; pages being written keep
  // garbage.
  void Die();
  // Describes the first invalid job; empty if there was none.
  const std::string& violation() const { return violation_; }

 private:
  struct JobInFlight {
    CopyJob job;
    bool early = false;             // the source was read in Submit
    std::vector<uint64_t> content;  // the bytes read, if early
  };

  void Require(bool ok, const char* what);
  void CheckJob(const CopyJob& job);
  bool InUse(const CopyJob& job, const BlockCopy& copy) const;
  bool Happens(double probability);
  std::span<uint64_t> Page(PageId page);
  void FillWithGarbage(std::span<uint64_t> slots);
  void Read(const CopyJob& job, ShadowWorker& worker, std::vector<uint64_t>& content);
  void Write(const JobInFlight& flight, int32_t num_good, ShadowWorker& worker);

  const int32_t block_size_;
  const ShadowFaults faults_;
  std::mt19937_64 random_;
  std::vector<uint64_t> pages_;                     // [page][offset]
  std::array<std::deque<JobInFlight>, 2> flights_;  // by direction, oldest first
  uint64_t last_job_ = 0;
  std::string violation_;
};

}  // namespace quire

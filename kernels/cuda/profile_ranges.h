// ProfileRanges: named ranges in profiles (NVTX). They exist only in a process that a profiler has
// attached to; in every other process a call is one comparison.
#pragma once

#include <cstdint>

struct nvtxDomainRegistration_st;

namespace quire::cuda {

class ProfileRanges {
 public:
  ProfileRanges();
  ~ProfileRanges();
  ProfileRanges(const ProfileRanges&) = delete;
  ProfileRanges& operator=(const ProfileRanges&) = delete;

  // Ranges belong to the calling thread and nest.
  void Begin(const char* name, int64_t number);
  void End();

 private:
  nvtxDomainRegistration_st* const domain_;  // null: no profiler
};

}  // namespace quire::cuda

// ProfileRanges: names in profiles (NVTX). They exist only where a profiler has loaded itself into
// this process; everywhere else a call is one comparison.
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

  // Of the calling thread: ranges nest.
  void Begin(const char* name, int64_t number);
  void End();

 private:
  nvtxDomainRegistration_st* const domain_;  // null: nobody listens
};

}  // namespace quire::cuda

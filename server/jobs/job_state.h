// JobState: whose a job is, its options, and how it stands: the small file of a job that is
// replaced as a whole. How far the job is follows from its results (job_record.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/identity/caller.h"

namespace quire {

enum class JobPhase : uint8_t { kRunning = 1, kCompleted = 2, kCancelled = 3, kFailed = 4 };
const char* Name(JobPhase phase);  // "running", ...

struct JobState {
  std::string id;
  // The rights of the key that created it, which its lines have.
  Caller caller;
  std::optional<int32_t> priority;  // nullopt: in the gaps of requests
  double expires_after_seconds = 0;
  int64_t created_ns = 0;  // since 1970, as all times here
  int64_t ended_ns = 0;    // 0: it has not
  JobPhase phase = JobPhase::kRunning;
  std::string failure;  // of kFailed
  uint64_t lines = 0;   // that are not blank
  int64_t input_bytes = 0;

  int64_t expires_ns() const {
    return created_ns + static_cast<int64_t>(expires_after_seconds * 1e9);
  }
};

// The whole file, with a checksum.
std::string EncodeJobState(const JobState& state);
// DATA_LOSS for bytes that are no such file.
absl::StatusOr<JobState> ReadJobState(std::string_view bytes);

}  // namespace quire

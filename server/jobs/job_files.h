// JobFiles: the three files of each job in the folder jobs/ of the session directory: the input as
// it came, the state, and the results. A job is there once its state is; what was written survives
// the death of the process, as everything of the session directory does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/jobs/job_record.h"
#include "server/jobs/job_state.h"
#include "server/jobs/line_reader.h"
#include "server/session/archive/disk.h"

namespace quire {

// A line of a job, as a request's largest message has room for it.
inline constexpr size_t kMaxLineBytes = size_t{4} << 20;

// A job that an earlier server left.
struct LeftJob {
  uint64_t number = 0;  // of its files
  JobState state;
  std::vector<bool> done;  // by the number of the line
  uint64_t done_lines = 0;
  uint64_t failed_lines = 0;
  int64_t result_bytes = 0;
  bool torn = false;  // bytes behind the last whole record were cut off
};

struct JobFolder {
  std::vector<LeftJob> jobs;
  uint64_t next_number = 1;
};

class JobFiles {
 public:
  explicit JobFiles(std::shared_ptr<Disk> disk) : disk_(std::move(disk)) {}

  // Reads what is there and tidies up: removes inputs without a state, cuts off torn records. A job
  // whose state is damaged is put aside under another name, and logged.
  absl::StatusOr<JobFolder> ReadFolder();

  absl::StatusOr<std::unique_ptr<DiskFile>> CreateInput(uint64_t number);
  absl::Status WriteState(uint64_t number, const JobState& state);
  absl::StatusOr<LineReader> OpenInput(uint64_t number, const JobState& state);
  // For appending; makes the file if there is none.
  absl::StatusOr<std::unique_ptr<DiskFile>> OpenResults(uint64_t number, bool fresh);
  // For reading.
  absl::StatusOr<std::unique_ptr<DiskFile>> ReadResults(uint64_t number);
  absl::Status Remove(uint64_t number);

 private:
  absl::Status ReadDone(LeftJob* job);

  const std::shared_ptr<Disk> disk_;
};

// The record at this offset of a file of results that ends at `size`; errors as ReadJobRecord.
absl::StatusOr<JobRecord> ReadRecordAt(DiskFile& file, int64_t offset, int64_t size);

}  // namespace quire

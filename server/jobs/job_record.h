// JobRecord: a line's result in the results of a job, a file to which records are only appended
// (docs/jobs.md has its format). The checksum of a record covers the place where it stands, so a
// reader may begin at any record, and finds out where none begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace quire {

struct JobRecord {
  uint32_t line = 0;    // of the input, from 1
  bool failed = false;  // the line has no answer
  std::string json;     // the result
};

inline constexpr size_t kRecordHeadBytes = 20;
// Of the JSON; a longer one is not written.
inline constexpr size_t kMaxRecordBytes = size_t{64} << 20;

// `offset`: of the record in the file.
std::string EncodeJobRecord(const JobRecord& record, int64_t offset);

// The bytes of the JSON that follow this head of kRecordHeadBytes. DATA_LOSS if it is none.
absl::StatusOr<size_t> JsonBytesOf(std::string_view head);
// Reads the record at the begin of `bytes`. OUT_OF_RANGE: they end within it. DATA_LOSS: no record
// stands at this offset.
absl::StatusOr<JobRecord> ReadJobRecord(std::string_view bytes, int64_t offset);

}  // namespace quire

// Size, line, kind, checksum, JSON.
#include "server/jobs/job_record.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine/base/status_macros.h"
#include "server/session/little_endian.h"

namespace quire {
namespace {

constexpr size_t kFieldBytes = 12;
constexpr uint32_t kAnswered = 0x51524A41, kFailed = 0x51524A46;  // "QRJA", "QRJF"

uint64_t Hash(std::string_view fields, std::string_view json, int64_t offset) {
  const uint64_t of_fields =
      XXH3_64bits_withSeed(fields.data(), fields.size(), static_cast<uint64_t>(offset));
  return XXH3_64bits_withSeed(json.data(), json.size(), of_fields);
}

}  // namespace

std::string EncodeJobRecord(const JobRecord& record, int64_t offset) {
  std::string out;
  out.reserve(kRecordHeadBytes + record.json.size());
  PutInt(static_cast<uint32_t>(record.json.size()), &out);
  PutInt(record.line, &out);
  PutInt(record.failed ? kFailed : kAnswered, &out);
  PutInt(Hash(out, record.json, offset), &out);
  return out + record.json;
}

absl::StatusOr<size_t> JsonBytesOf(std::string_view head) {
  const auto size = GetInt<uint32_t>(head.data());
  const auto kind = GetInt<uint32_t>(head.data() + 2 * sizeof(uint32_t));
  if (size > kMaxRecordBytes || (kind != kAnswered && kind != kFailed)) {
    return absl::DataLossError("no record begins here");
  }
  return size;
}

absl::StatusOr<JobRecord> ReadJobRecord(std::string_view bytes, int64_t offset) {
  if (bytes.size() < kRecordHeadBytes) return absl::OutOfRangeError("cut");
  ASSIGN_OR_RETURN(const size_t size, JsonBytesOf(bytes));
  if (bytes.size() - kRecordHeadBytes < size) return absl::OutOfRangeError("cut");
  const std::string_view json = bytes.substr(kRecordHeadBytes, size);
  if (GetInt<uint64_t>(bytes.data() + kFieldBytes) !=
      Hash(bytes.substr(0, kFieldBytes), json, offset)) {
    return absl::DataLossError("a wrong checksum");
  }
  return JobRecord{.line = GetInt<uint32_t>(bytes.data() + sizeof(uint32_t)),
                   .failed = GetInt<uint32_t>(bytes.data() + 2 * sizeof(uint32_t)) == kFailed,
                   .json = std::string(json)};
}

}  // namespace quire

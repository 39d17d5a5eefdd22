// Fields in the order of docs/jobs.md.
#include "server/jobs/job_state.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "server/session/little_endian.h"

namespace quire {
namespace {

constexpr std::string_view kMagic = "QUIREJOB";
constexpr uint32_t kVersion = 1;
constexpr size_t kSumBytes = 8;

uint64_t Hash(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace

const char* Name(JobPhase phase) {
  switch (phase) {
    case JobPhase::kRunning: return "running";
    case JobPhase::kCompleted: return "completed";
    case JobPhase::kCancelled: return "cancelled";
    case JobPhase::kFailed: return "failed";
  }
  return "";
}

std::string EncodeJobState(const JobState& state) {
  std::string out(kMagic);
  PutInt(kVersion, &out);
  PutString(state.id, &out);
  PutInt(state.caller.tenant, &out);
  PutString(state.caller.tenant_name, &out);
  PutString(state.caller.key_id, &out);
  PutInt(state.caller.max_priority, &out);
  PutInt(static_cast<uint32_t>(state.caller.models.size()), &out);
  for (const std::string& model : state.caller.models) PutString(model, &out);
  PutInt(static_cast<uint8_t>(state.priority.has_value()), &out);
  PutInt(state.priority.value_or(0), &out);
  PutDouble(state.expires_after_seconds, &out);
  PutInt(state.created_ns, &out);
  PutInt(state.ended_ns, &out);
  PutInt(static_cast<uint8_t>(state.phase), &out);
  PutString(state.failure, &out);
  PutInt(state.lines, &out);
  PutInt(state.input_bytes, &out);
  PutInt(Hash(out), &out);
  return out;
}

absl::StatusOr<JobState> ReadJobState(std::string_view bytes) {
  const size_t head = kMagic.size() + sizeof kVersion;
  if (bytes.size() < head + kSumBytes || bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError("no state of a job");
  }
  const std::string_view summed = bytes.substr(0, bytes.size() - kSumBytes);
  if (GetInt<uint64_t>(bytes.data() + summed.size()) != Hash(summed)) {
    return absl::DataLossError("a wrong checksum");
  }
  const auto version = GetInt<uint32_t>(bytes.data() + kMagic.size());
  if (version != kVersion) return absl::DataLossError("version " + std::to_string(version));
  FieldReader fields(summed.substr(head));
  JobState state;
  state.id = fields.Text();
  state.caller.tenant = fields.Number<uint64_t>();
  state.caller.tenant_name = fields.Text();
  state.caller.key_id = fields.Text();
  state.caller.max_priority = fields.Number<int32_t>();
  state.caller.scopes = {Scope::kInfer};
  const auto models = fields.Number<uint32_t>();
  if (models > summed.size()) return absl::DataLossError("a state of another form");
  for (uint32_t i = 0; i < models; ++i) state.caller.models.push_back(fields.Text());
  const bool has_priority = fields.Number<uint8_t>() != 0;
  const auto priority = fields.Number<int32_t>();
  if (has_priority) state.priority = priority;
  state.expires_after_seconds = fields.Double();
  state.created_ns = fields.Number<int64_t>();
  state.ended_ns = fields.Number<int64_t>();
  const auto phase = fields.Number<uint8_t>();
  state.phase = static_cast<JobPhase>(phase);
  state.failure = fields.Text();
  state.lines = fields.Number<uint64_t>();
  state.input_bytes = fields.Number<int64_t>();
  if (!fields.Complete() || phase < 1 || phase > 4 || !(state.expires_after_seconds >= 0)) {
    return absl::DataLossError("a state of another form");
  }
  return state;
}

}  // namespace quire

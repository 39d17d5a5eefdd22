// Annotations travel as absl::Status payloads; ToGrpcStatus turns each into its google.rpc message.
#include "server/call/status_codec.h"

#include <cmath>
#include <cstdint>

#include <grpcpp/support/status.h>

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace quire {
namespace {

constexpr char kField[] = "quire/field";
constexpr char kReason[] = "quire/reason";
constexpr char kRetrySeconds[] = "quire/retry_seconds";
constexpr char kQuota[] = "quire/quota";
constexpr char kFact[] = "quire/fact/";  // then the fact's name

// google.rpc messages are named by type URLs under this prefix, as all protobuf messages are.
constexpr char kTypeUrlPrefix[] = "type.googleapis.com";

// A status travels in metadata, of which clients take 8 KiB, and has its message three times: once
// with up to 3 characters a byte and twice, in the details, with 4 characters for 3 bytes.
constexpr size_t kMaxMessageBytes = 1024;

// A field that is named after what the client wrote may be longer than any of ours.
constexpr size_t kMaxFieldBytes = 256;

// The message, cut between two code points when it is longer than can arrive: what a chat template
// says may hold the client's own words.
std::string Sendable(const absl::string_view message, size_t max_bytes = kMaxMessageBytes) {
  std::string text(message.data(), message.size());
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

void AddDetail(const google::protobuf::Message& detail, google::rpc::Status* status) {
  status->add_details()->PackFrom(detail, kTypeUrlPrefix);
}

void AddFacts(const absl::Status& status, google::rpc::ErrorInfo* info) {
  constexpr size_t kPrefix = sizeof(kFact) - 1;
  status.ForEachPayload([info](absl::string_view url, const absl::Cord& value) {
    if (url.substr(0, kPrefix) != kFact) return;
    const absl::string_view name = url.substr(kPrefix);
    (*info->mutable_metadata())[std::string(name.data(), name.size())] = std::string(value);
  });
}

}  // namespace

absl::Status InvalidField(const std::string& field, const std::string& description) {
  const std::string name = Sendable(field, kMaxFieldBytes);
  absl::Status status = absl::InvalidArgumentError(name + ": " + description);
  status.SetPayload(kField, absl::Cord(name));
  return status;
}

absl::Status Refusal(absl::StatusCode code, const std::string& reason, const std::string& message,
                     double retry_seconds) {
  absl::Status status(code, message);
  status.SetPayload(kReason, absl::Cord(reason));
  if (retry_seconds > 0)
    status.SetPayload(kRetrySeconds, absl::Cord(std::to_string(retry_seconds)));
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  const auto reason = status.GetPayload(kReason);
  return reason.has_value() ? std::string(*reason) : "";
}

std::string FieldOf(const absl::Status& status) {
  const auto field = status.GetPayload(kField);
  return field.has_value() ? std::string(*field) : "";
}

void AddReason(const std::string& reason, absl::Status* status) {
  status->SetPayload(kReason, absl::Cord(reason));
}

void AddFact(const std::string& name, const std::string& value, absl::Status* status) {
  status->SetPayload(kFact + name, absl::Cord(value));
}

void AddQuota(const std::string& description, absl::Status* status) {
  status->SetPayload(kQuota, absl::Cord(description));
}

absl::Status ReplyTooLarge(int64_t limit_bytes, const std::string& instead) {
  return Refusal(absl::StatusCode::kResourceExhausted, "REPLY_TOO_LARGE",
                 "the reply exceeds the " + std::to_string(limit_bytes) +
                     " bytes that one message may have: " + instead);
}

absl::Status StatusOf(FinishReason reason) {
  using absl::StatusCode;
  switch (reason) {
    case FinishReason::kEos:
    case FinishReason::kStopToken:
    case FinishReason::kStopText:
    case FinishReason::kMaxTokens:
    case FinishReason::kLoop:
    case FinishReason::kNoToken:
    case FinishReason::kTruncated:
    case FinishReason::kContextLimit: return absl::OkStatus();
    case FinishReason::kDeadline:
      return Refusal(StatusCode::kDeadlineExceeded, "DEADLINE", "the deadline has passed");
    case FinishReason::kCancelled:
      return Refusal(StatusCode::kCancelled, "CANCELLED", "the request was cancelled");
    case FinishReason::kSlowReader:
      return Refusal(StatusCode::kResourceExhausted, "SLOW_READER",
                     "the client did not read its stream for too long; what was sent is a valid "
                     "prefix");
    case FinishReason::kDraining:
      return Refusal(StatusCode::kUnavailable, "DRAINING",
                     "the server is going away; retry elsewhere", 1);
    case FinishReason::kNumeric:
      return Refusal(StatusCode::kInternal, "NUMERIC",
                     "the model's output for this request was not a number");
    case FinishReason::kNone:
    case FinishReason::kEngineFault: break;
  }
  return Refusal(StatusCode::kInternal, "ENGINE_FAULT",
                 "the engine failed while running this request; it may be sent again");
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message = Sendable(status.message());
  google::rpc::Status details;
  details.set_code(static_cast<int>(code));
  details.set_message(message);
  if (const auto field = status.GetPayload(kField)) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(std::string(*field));
    violation->set_description(message);
    AddDetail(bad, &details);
  }
  if (const auto reason = status.GetPayload(kReason)) {
    google::rpc::ErrorInfo info;
    info.set_reason(std::string(*reason));
    info.set_domain("quire");
    AddFacts(status, &info);
    AddDetail(info, &details);
  }
  if (const auto quota = status.GetPayload(kQuota)) {
    google::rpc::QuotaFailure failure;
    auto* violation = failure.add_violations();
    violation->set_subject("tenant");
    violation->set_description(std::string(*quota));
    AddDetail(failure, &details);
  }
  if (const auto retry = status.GetPayload(kRetrySeconds)) {
    const double seconds = std::stod(std::string(*retry));
    google::rpc::RetryInfo info;
    info.mutable_retry_delay()->set_seconds(static_cast<int64_t>(seconds));
    info.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>(std::lround((seconds - std::floor(seconds)) * 1e9)));
    AddDetail(info, &details);
  }
  if (details.details_size() == 0) return grpc::Status(code, message);
  return grpc::Status(code, message, details.SerializeAsString());
}

}  // namespace quire

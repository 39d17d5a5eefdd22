// Errors on their way out: one vocabulary of annotated absl::Status inside the server, and the only
// function that turns it into a grpc::Status with google.rpc details. docs/errors.md has the table.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/values/output_sink.h"

namespace grpc {
class Status;
}

namespace quire {

// INVALID_ARGUMENT that names the field by its path from the request message ("sampling.top_p");
// the message says what is wrong and what is valid. Becomes BadRequest.field_violations.
absl::Status InvalidField(const std::string& field, const std::string& description);

// A refusal with a reason a program can switch on (ErrorInfo.reason, UPPER_SNAKE_CASE), and, when
// retry_seconds > 0, when to come back (RetryInfo).
absl::Status Refusal(absl::StatusCode code, const std::string& reason, const std::string& message,
                     double retry_seconds = 0);

// Names the limit of the caller's own that refused the request; becomes QuotaFailure.violations.
void AddQuota(const std::string& description, absl::Status* status);

// The reason of a status, and the field that it names; empty if it has none.
std::string ReasonOf(const absl::Status& status);
std::string FieldOf(const absl::Status& status);

// Adds a reason to a status that has none, and a fact that programs can read beside the reason
// (ErrorInfo.metadata).
void AddReason(const std::string& reason, absl::Status* status);
void AddFact(const std::string& name, const std::string& value, absl::Status* status);

// Refuses a reply that is too large for one message (FrontOptions::max_reply_bytes). `instead`: a
// smaller request, in words.
absl::Status ReplyTooLarge(int64_t limit_bytes, const std::string& instead);

// The status of an accepted request's end. OK for every regular end.
absl::Status StatusOf(FinishReason reason);

grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace quire

// Report: a failed RPC as text for people and as an exit code for scripts.
#pragma once

#include <grpcpp/support/status.h>

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "clients/cpp/flags/exit_codes.h"

namespace quire::cli {

// "INVALID_ARGUMENT", ... as gRPC spells them.
const char* Name(grpc::StatusCode code);

// Prints a failure as one line with code and message, then a line for each google.rpc detail that
// says more than the message; nothing when the status is OK. Returns the exit code.
int Report(const grpc::Status& status, std::ostream& err);

// Prints "quire: <what>" and returns kExitLocal.
int ReportLocal(const std::string& what, std::ostream& err);

// The same of a mistake on the command line or in a file that it names; returns kExitUsage.
int ReportMistake(const absl::Status& mistake, std::ostream& err);

}  // namespace quire::cli

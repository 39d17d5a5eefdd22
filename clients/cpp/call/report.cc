// Status codes by name, and a failure with its details as text.
#include "clients/cpp/call/report.h"

#include "clients/cpp/call/error_details.h"

namespace quire::cli {
namespace {

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

const char* Name(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

int Report(const grpc::Status& status, std::ostream& err) {
  if (status.ok()) return kExitOk;
  err << "quire: " << Name(status.error_code()) << ": " << status.error_message() << "\n";
  for (const std::string& line : DescribeErrorDetails(status.error_details())) {
    if (!EndsWith(line, ": " + status.error_message())) err << "  " << line << "\n";
  }
  err.flush();
  return kExitStatusBase + static_cast<int>(status.error_code());
}

int ReportLocal(const std::string& what, std::ostream& err) {
  err << "quire: " << what << std::endl;
  return kExitLocal;
}

int ReportMistake(const absl::Status& mistake, std::ostream& err) {
  err << "quire: " << mistake.message() << std::endl;
  return kExitUsage;
}

}  // namespace quire::cli

// One line per fact of each google.rpc message.
#include "clients/cpp/call/error_details.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace quire::cli {
namespace {

void Describe(const google::rpc::BadRequest& bad, std::vector<std::string>* lines) {
  for (const auto& violation : bad.field_violations()) {
    lines->push_back(absl::StrCat("field ", violation.field(), ": ", violation.description()));
  }
}

void Describe(const google::rpc::RetryInfo& retry, std::vector<std::string>* lines) {
  const auto& delay = retry.retry_delay();
  const double seconds =
      static_cast<double>(delay.seconds()) + static_cast<double>(delay.nanos()) * 1e-9;
  lines->push_back(absl::StrFormat("retry after %g s", seconds));
}

void Describe(const google::rpc::ErrorInfo& info, std::vector<std::string>* lines) {
  std::string line = absl::StrCat("reason ", info.reason());
  if (!info.domain().empty()) absl::StrAppend(&line, " of ", info.domain());
  for (const auto& [key, value] : info.metadata()) absl::StrAppend(&line, " ", key, "=", value);
  lines->push_back(std::move(line));
}

template <typename Message>
bool DescribeAs(const google::protobuf::Any& detail, std::vector<std::string>* lines) {
  Message message;
  if (!detail.Is<Message>() || !detail.UnpackTo(&message)) return false;
  Describe(message, lines);
  return true;
}

}  // namespace

std::vector<std::string> DescribeErrorDetails(const std::string& status_bytes) {
  google::rpc::Status status;
  if (!status.ParseFromString(status_bytes)) return {"details that are no google.rpc.Status"};
  std::vector<std::string> lines;
  for (const google::protobuf::Any& detail : status.details()) {
    if (DescribeAs<google::rpc::BadRequest>(detail, &lines) ||
        DescribeAs<google::rpc::RetryInfo>(detail, &lines) ||
        DescribeAs<google::rpc::ErrorInfo>(detail, &lines)) {
      continue;
    }
    lines.push_back("detail of type " + detail.type_url().substr(detail.type_url().rfind('/') + 1));
  }
  return lines;
}

}  // namespace quire::cli

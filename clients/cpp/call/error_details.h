// DescribeErrorDetails: the google.rpc details of a failed call (google.rpc.Status, as gRPC carries
// it in grpc-status-details-bin) as lines for a human.
#pragma once

#include <string>
#include <vector>

namespace quire::cli {

// One line per fact: field violations, quota violations, reason, retry delay. Details of other
// types are named; bytes that are no google.rpc.Status give one line that says so; empty bytes give
// none.
std::vector<std::string> DescribeErrorDetails(const std::string& status_bytes);

}  // namespace quire::cli

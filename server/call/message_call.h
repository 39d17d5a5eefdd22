// Calls answered by one function from request message to response message: everything but
// generation.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "server/call/call_resources.h"
#include "server/call/raw_service.h"
#include "server/call/wire_check.h"

namespace google::protobuf {
class MessageLite;
}

namespace quire {

// Where the function runs: on gRPC's thread if it is quick for every request, else on the text
// pool.
enum class CallCost : uint8_t { kQuick, kLinearInRequest };

using BytesFunction =
    std::function<absl::Status(const Caller& caller, const grpc::ByteBuffer&, std::string*)>;

// Refuses a reply above `limit_bytes`. The library's own status would not say how to ask for less.
absl::Status CheckReplySize(int64_t limit_bytes, const google::protobuf::MessageLite& reply);

// `resources` outlive the calls; `path` is a literal.
RawService::Unary BytesCall(const CallResources* resources, const char* path, CallCost cost,
                            BytesFunction function);

// Registers absl::Status function(const Request&, Response*) under `path`; the function may take
// the Caller before these.
template <typename Request, typename Response, typename Function>
void AddCall(RawService* service, const CallResources* resources, const char* path, CallCost cost,
             Function function) {
  service->Add(
      path,
      BytesCall(
          resources, path, cost,
          [resources, function = std::move(function)](
              const Caller& caller, const grpc::ByteBuffer& in, std::string* out) {
            Request request;
            Response response;
            absl::Status status = ParseMessage(in, &request);
            if (status.ok()) {
              if constexpr (std::is_invocable_v<Function, const Caller&, Request&, Response*>) {
                status = function(caller, request, &response);
              } else {
                status = function(request, &response);
              }
            }
            const int64_t limit_bytes = resources->options.max_reply_bytes;
            if (status.ok()) status = CheckReplySize(limit_bytes, response);
            if (status.ok()) response.SerializeToString(out);
            return status;
          }));
}

}  // namespace quire

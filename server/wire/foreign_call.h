// ForeignCall: a call of another project's protocol, answered by one function from request message
// to response message. As AddCall (server/call/message_call.h), but unknown fields are refused.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "server/call/message_call.h"
#include "server/wire/unknown_fields.h"

namespace quire {

// Registers absl::Status function(const Request&, Response*) under `path`, a literal; the function
// may take the Caller before these. It runs on gRPC's thread: it must be quick.
template <typename Request, typename Response, typename Function>
void AddForeignCall(RawService* service, const CallResources* resources, const char* path,
                    Function function) {
  const auto answer = [resources, function = std::move(function)](
                          const Caller& caller, const grpc::ByteBuffer& in, std::string* out) {
    Request request;
    Response response;
    absl::Status status = ParseKnownFields(in, &request);
    if (status.ok()) {
      if constexpr (std::is_invocable_v<Function, const Caller&, const Request&, Response*>) {
        status = function(caller, request, &response);
      } else {
        status = function(request, &response);
      }
    }
    if (status.ok()) status = CheckReplySize(resources->options.max_reply_bytes, response);
    if (status.ok()) response.SerializeToString(out);
    return status;
  };
  service->Add(path, BytesCall(resources, path, CallCost::kQuick, answer));
}

}  // namespace quire

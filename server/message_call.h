// Calls answered by one function from request message to response message: everything but
// generation.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "server/raw_service.h"
#include "server/stream_host.h"

namespace quire {

// Where the function runs: on gRPC's thread when it is quick whatever the client sent, else on the
// text pool.
enum class CallCost : uint8_t { kQuick, kLinearInRequest };

using MessageFunction =
    std::function<absl::Status(const google::protobuf::Message&, google::protobuf::Message*)>;

// The prototypes are the message types' default instances. `path` is a literal.
RawService::Unary MessageCall(StreamHost* host, const char* path, CallCost cost,
                              const google::protobuf::Message* request_prototype,
                              const google::protobuf::Message* response_prototype,
                              MessageFunction function);

// Registers absl::Status function(const Request&, Response*) under `path`.
template <typename Request, typename Response, typename Function>
void AddCall(RawService* service, StreamHost* host, const char* path, CallCost cost,
             Function function) {
  service->Add(
      path,
      MessageCall(host, path, cost, &Request::default_instance(), &Response::default_instance(),
                  [function = std::move(function)](const google::protobuf::Message& request,
                                                   google::protobuf::Message* response) {
                    return function(static_cast<const Request&>(request),
                                    static_cast<Response*>(response));
                  }));
}

}  // namespace quire

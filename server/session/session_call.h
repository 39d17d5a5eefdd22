// Session calls of one request and one answer: the request becomes an operation on the sessions,
// and the session thread encodes and sends the answer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "engine/values/session_operation.h"
#include "server/call/message_call.h"
#include "server/call/raw_service.h"
#include "server/call/wire_check.h"
#include "server/session/session_resources.h"

namespace quire {

// Encodes the sessions in the operation's answer.
using SessionEncoder =
    std::function<std::string(const std::vector<SessionInfo>& found, int64_t now_ns)>;
struct SessionPlan {
  SessionOperation operation;
  SessionEncoder encode;
};
// From the request's bytes and the caller's tenant.
using SessionDecoder =
    std::function<absl::StatusOr<SessionPlan>(const grpc::ByteBuffer&, TenantId)>;

// `resources` outlive the calls; `path` and `field` are literals. `field`: the request's field that
// an INVALID_ARGUMENT of the engine is about; empty: none.
RawService::Unary SessionCall(const SessionResources* resources, const char* path,
                              const char* field, SessionDecoder decode);

// A call of absl::StatusOr<SessionOperation> decode(const Request&) and
// void encode(const Request&, found, now_ns, Response*).
template <typename Request, typename Response, typename Decode, typename Encode>
RawService::Unary MakeSessionCall(const SessionResources* resources, const char* path,
                                  const char* field, Decode decode, Encode encode) {
  return SessionCall(
      resources, path, field,
      [=](const grpc::ByteBuffer& bytes, TenantId tenant) -> absl::StatusOr<SessionPlan> {
        Request request;
        RETURN_IF_ERROR(ParseMessage(bytes, &request));
        SessionPlan plan;
        ASSIGN_OR_RETURN(plan.operation, decode(request));
        plan.operation.tenant = tenant;
        plan.encode = [encode, request = std::move(request)](const std::vector<SessionInfo>& found,
                                                             int64_t now_ns) {
          Response response;
          encode(request, found, now_ns, &response);
          return response.SerializeAsString();
        };
        return plan;
      });
}

}  // namespace quire

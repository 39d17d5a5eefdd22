// Session calls of one request and one answer: what the request asks is a function that runs on the
// scheduler thread; what it found is encoded and sent by the session thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "engine/schedule/sessions/session_store.h"
#include "engine/values/session.h"
#include "server/call/message_call.h"
#include "server/call/raw_service.h"
#include "server/call/stream_host.h"
#include "server/call/wire_check.h"

namespace quire {

// A call's effect: on the scheduler thread, so it may not block. Refusals are the server's own
// (FromStore).
using SessionAsk =
    std::function<absl::StatusOr<std::vector<SessionInfo>>(SessionStore& sessions, int64_t now_ns)>;
// The answer's bytes, of what the ask found.
using SessionEncoder =
    std::function<std::string(const std::vector<SessionInfo>& found, int64_t now_ns)>;
struct SessionPlan {
  SessionAsk ask;
  SessionEncoder encode;
};
// From the request's bytes and whose they are.
using SessionDecoder =
    std::function<absl::StatusOr<SessionPlan>(const grpc::ByteBuffer&, TenantId)>;

// `path` is a literal.
RawService::Unary SessionCall(StreamHost* host, const char* path, SessionDecoder decode);

// Registers absl::StatusOr<SessionAsk> decode(const Request&, TenantId) and
// void encode(const Request&, found, now_ns, Response*) under `path`.
template <typename Request, typename Response, typename Decode, typename Encode>
void AddSessionCall(RawService* service, StreamHost* host, const char* path, Decode decode,
                    Encode encode) {
  service->Add(
      path, SessionCall(
                host, path,
                [=](const grpc::ByteBuffer& bytes, TenantId tenant) -> absl::StatusOr<SessionPlan> {
                  Request request;
                  RETURN_IF_ERROR(ParseMessage(bytes, &request));
                  SessionPlan plan;
                  ASSIGN_OR_RETURN(plan.ask, decode(request, tenant));
                  plan.encode = [encode, request = std::move(request)](
                                    const std::vector<SessionInfo>& found, int64_t now_ns) {
                    Response response;
                    encode(request, found, now_ns, &response);
                    return response.SerializeAsString();
                  };
                  return plan;
                }));
}

}  // namespace quire

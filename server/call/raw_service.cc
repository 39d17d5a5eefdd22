// Registration of raw callback methods, each behind the door, and the log of those for
// administrators.
#include "server/call/raw_service.h"

#include <grpcpp/server_context.h>

#include <memory>
#include <utility>

#include "engine/base/log.h"
#include "kernels/check.h"
#include "server/call/status_codec.h"
#include "server/identity/call_facts.h"
#include "server/identity/method_scopes.h"

namespace quire {
namespace {

using grpc::internal::RpcMethod;
using grpc::internal::RpcServiceMethod;

// Ends a call whose key was revoked between its headers and its message: the listener's gate has
// refused every other caller (server/identity/call_gate.h).
template <typename Reactor>
class RefusedCall final : public Reactor {
 public:
  explicit RefusedCall(Refused refused) { this->Finish(ToGrpcStatus(StatusOf(refused))); }
  void OnDone() override { delete this; }
};

// Each call is one line, also if it is refused behind the door: administrators are trusted, so no
// rate limit may hide a use of theirs.
void LogAdministration(const char* path, const Caller& caller) {
  Log(Severity::kInfo, "administration",
      {{"method", path + 1}, {"tenant", caller.tenant_name}, {"key", caller.key_id}});
}

// Calls `method` with the caller, as the library wants it.
template <typename Reactor, typename Method>
auto BehindDoor(const Door& door, const char* path, Method method) {
  return [&door, path, administers = RuleOf(path).administers(), method = std::move(method)](
             grpc::CallbackServerContext* context, auto*... messages) -> Reactor* {
    const Admission admission = door.Admit(FactsOf(*context), path);
    if (!admission.ok()) return new RefusedCall<Reactor>(admission.refused);
    if (administers) LogAdministration(path, *admission.caller);
    return method(IncomingCall{context, admission.caller}, messages...);
  };
}

}  // namespace

void RawService::Add(const char* path, RpcMethod::RpcType type,
                     grpc::internal::MethodHandler* handler) {
  CHECK(RuleOf(path).known);
  AddMethod(new RpcServiceMethod(path, type, nullptr));
  MarkMethodRawCallback(count_++, handler);
}

void RawService::Add(const char* path, Unary method) {
  Add(path, RpcMethod::NORMAL_RPC,
      new grpc::internal::CallbackUnaryHandler<Bytes, Bytes>(
          BehindDoor<grpc::ServerUnaryReactor>(door_, path, std::move(method))));
}

void RawService::Add(const char* path, ServerStreaming method) {
  Add(path, RpcMethod::SERVER_STREAMING,
      new grpc::internal::CallbackServerStreamingHandler<Bytes, Bytes>(
          BehindDoor<grpc::ServerWriteReactor<Bytes>>(door_, path, std::move(method))));
}

void RawService::Add(const char* path, ClientStreaming method) {
  Add(path, RpcMethod::CLIENT_STREAMING,
      new grpc::internal::CallbackClientStreamingHandler<Bytes, Bytes>(
          BehindDoor<grpc::ServerReadReactor<Bytes>>(door_, path, std::move(method))));
}

void RawService::Add(const char* path, Bidi method) {
  Add(path, RpcMethod::BIDI_STREAMING,
      new grpc::internal::CallbackBidiHandler<Bytes, Bytes>(
          BehindDoor<grpc::ServerBidiReactor<Bytes, Bytes>>(door_, path, std::move(method))));
}

grpc::ByteBuffer ToByteBuffer(const void* data, size_t size) {
  const grpc::Slice slice(data, size);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace quire

// RawService: a gRPC service whose methods take and give bytes, and know their caller. Typed
// handlers of gRPC 1.51 answer a malformed message or invalid UTF-8 with UNIMPLEMENTED and no text;
// ours parse the bytes themselves (wire_check.h) and name the fault. No method can be added without
// a rule in server/identity/method_scopes.cc; each call of a method that only administrators may
// use is logged with its caller.
#pragma once

#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>

#include "server/identity/door.h"

namespace quire {

// A call that the door has admitted.
struct IncomingCall {
  grpc::CallbackServerContext* context;  // until OnDone
  CallerRef caller;                      // never null
};

class RawService : public grpc::Service {
 public:
  using Bytes = grpc::ByteBuffer;
  // The request and response belong to the call and live until its OnDone.
  using Unary = std::function<grpc::ServerUnaryReactor*(const IncomingCall&, const Bytes*, Bytes*)>;
  using ServerStreaming =
      std::function<grpc::ServerWriteReactor<Bytes>*(const IncomingCall&, const Bytes*)>;
  using ClientStreaming =
      std::function<grpc::ServerReadReactor<Bytes>*(const IncomingCall&, Bytes*)>;
  using Bidi = std::function<grpc::ServerBidiReactor<Bytes, Bytes>*(const IncomingCall&)>;

  // `door` outlives the service.
  explicit RawService(const Door* door) : door_(*door) {}

  // `path` is "/package.Service/Method" and outlives the service (a literal).
  void Add(const char* path, Unary method);
  void Add(const char* path, ServerStreaming method);
  void Add(const char* path, ClientStreaming method);
  void Add(const char* path, Bidi method);

 private:
  void Add(const char* path, grpc::internal::RpcMethod::RpcType type,
           grpc::internal::MethodHandler* handler);

  const Door& door_;
  int count_ = 0;
};

// A frame's bytes as gRPC wants them; copies.
grpc::ByteBuffer ToByteBuffer(const void* data, size_t size);

}  // namespace quire

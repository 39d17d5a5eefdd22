// Registration of raw callback methods.
#include "server/call/raw_service.h"

#include <utility>

namespace quire {

using grpc::internal::RpcMethod;
using grpc::internal::RpcServiceMethod;

void RawService::Add(const char* path, RpcMethod::RpcType type,
                     grpc::internal::MethodHandler* handler) {
  AddMethod(new RpcServiceMethod(path, type, nullptr));
  MarkMethodRawCallback(count_++, handler);
}

void RawService::Add(const char* path, Unary method) {
  Add(path, RpcMethod::NORMAL_RPC,
      new grpc::internal::CallbackUnaryHandler<Bytes, Bytes>(std::move(method)));
}

void RawService::Add(const char* path, ServerStreaming method) {
  Add(path, RpcMethod::SERVER_STREAMING,
      new grpc::internal::CallbackServerStreamingHandler<Bytes, Bytes>(std::move(method)));
}

void RawService::Add(const char* path, ClientStreaming method) {
  Add(path, RpcMethod::CLIENT_STREAMING,
      new grpc::internal::CallbackClientStreamingHandler<Bytes, Bytes>(std::move(method)));
}

void RawService::Add(const char* path, Bidi method) {
  Add(path, RpcMethod::BIDI_STREAMING,
      new grpc::internal::CallbackBidiHandler<Bytes, Bytes>(std::move(method)));
}

grpc::ByteBuffer ToByteBuffer(const void* data, size_t size) {
  const grpc::Slice slice(data, size);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace quire

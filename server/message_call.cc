// Parse, answer, count, finish.
#include "server/message_call.h"

#include <string>

#include "engine/base/clock.h"
#include "server/status_codec.h"
#include "server/text_pool.h"
#include "server/wire_check.h"

namespace quire {
namespace {

using google::protobuf::Message;

struct Call {
  StreamHost* host;
  std::string method;
  const Message* request_prototype;
  const Message* response_prototype;
  MessageFunction function;

  absl::Status Answer(const grpc::ByteBuffer& in, grpc::ByteBuffer* out) const {
    const std::unique_ptr<Message> request(request_prototype->New());
    const std::unique_ptr<Message> response(response_prototype->New());
    absl::Status status = ParseMessage(in, request.get());
    if (status.ok()) status = function(*request, response.get());
    if (!status.ok()) return status;
    const std::string bytes = response->SerializeAsString();
    *out = ToByteBuffer(bytes.data(), bytes.size());
    return status;
  }

  // The reactor is gRPC's own: it needs nothing but to be finished once.
  void Finish(const absl::Status& status, int64_t started_ns,
              grpc::ServerUnaryReactor* reactor) const {
    host->metrics->RpcFinished(method, static_cast<int>(status.code()),
                               static_cast<double>(SteadyNowNs() - started_ns) * 1e-9);
    reactor->Finish(ToGrpcStatus(status));
  }
};

}  // namespace

RawService::Unary MessageCall(StreamHost* host, const char* path, CallCost cost,
                              const Message* request_prototype, const Message* response_prototype,
                              MessageFunction function) {
  const std::string name(path);
  const auto call =
      std::make_shared<const Call>(Call{host, name.substr(name.rfind('/') + 1), request_prototype,
                                        response_prototype, std::move(function)});
  return [call, cost](grpc::CallbackServerContext* context, const grpc::ByteBuffer* in,
                      grpc::ByteBuffer* out) {
    const int64_t started_ns = SteadyNowNs();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (cost == CallCost::kQuick) {
      call->Finish(call->Answer(*in, out), started_ns, reactor);
      return reactor;
    }
    const absl::Status queued = call->host->text_pool->Run(
        in->Length(), [=] { call->Finish(call->Answer(*in, out), started_ns, reactor); });
    if (!queued.ok()) call->Finish(queued, started_ns, reactor);
    return reactor;
  };
}

}  // namespace quire

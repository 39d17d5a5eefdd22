// Answer, count, finish.
#include "server/call/message_call.h"

#include <google/protobuf/message_lite.h>

#include <memory>

#include "engine/base/clock.h"
#include "server/call/connection_table.h"
#include "server/call/status_codec.h"
#include "server/call/text_pool.h"
#include "server/metrics/metrics.h"

namespace quire {
namespace {

class AnswerReactor final : public grpc::ServerUnaryReactor {
 public:
  AnswerReactor(ConnectionTable* connections, const std::string& peer) : call_(connections, peer) {}
  void OnDone() override { delete this; }

 private:
  const OpenCall call_;
};

struct Call {
  const CallResources* resources;
  std::string method;
  BytesFunction function;

  void Answer(TenantId tenant, const grpc::ByteBuffer& in, grpc::ByteBuffer* out,
              int64_t started_ns, grpc::ServerUnaryReactor* reactor) const {
    std::string bytes;
    const absl::Status status = function(tenant, in, &bytes);
    if (status.ok()) *out = ToByteBuffer(bytes.data(), bytes.size());
    Finish(status, started_ns, reactor);
  }

  void Finish(const absl::Status& status, int64_t started_ns,
              grpc::ServerUnaryReactor* reactor) const {
    resources->metrics.RpcFinished(method, static_cast<int>(status.code()),
                                   static_cast<double>(SteadyNowNs() - started_ns) * 1e-9);
    reactor->Finish(ToGrpcStatus(status));
  }
};

}  // namespace

absl::Status CheckReplySize(int64_t limit_bytes, const google::protobuf::MessageLite& reply) {
  if (static_cast<int64_t>(reply.ByteSizeLong()) <= limit_bytes) return absl::OkStatus();
  return ReplyTooLarge(limit_bytes,
                       "ask for less in one call: a shorter text, fewer ids, no offsets");
}

RawService::Unary BytesCall(const CallResources* resources, const char* path, CallCost cost,
                            BytesFunction function) {
  const std::string name(path);
  const auto call = std::make_shared<const Call>(
      Call{resources, name.substr(name.rfind('/') + 1), std::move(function)});
  return [call, cost](grpc::CallbackServerContext* context, const grpc::ByteBuffer* in,
                      grpc::ByteBuffer* out) {
    const int64_t started_ns = SteadyNowNs();
    const TenantId tenant = call->resources->options.identity(*context);
    auto* reactor = new AnswerReactor(&call->resources->connections, context->peer());
    if (cost == CallCost::kQuick) {
      call->Answer(tenant, *in, out, started_ns, reactor);
      return static_cast<grpc::ServerUnaryReactor*>(reactor);
    }
    const absl::Status queued = call->resources->text_pool.Run(
        in->Length(), [=] { call->Answer(tenant, *in, out, started_ns, reactor); });
    if (!queued.ok()) call->Finish(queued, started_ns, reactor);
    return static_cast<grpc::ServerUnaryReactor*>(reactor);
  };
}

}  // namespace quire

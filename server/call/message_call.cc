// Answer, count, finish.
#include "server/call/message_call.h"

#include <google/protobuf/message_lite.h>

#include <memory>

#include "engine/base/clock.h"
#include "server/call/connection_table.h"
#include "server/call/status_codec.h"
#include "server/call/text_pool.h"
#include "server/metrics/metrics.h"
#include "server/text/pattern/stop_mark.h"

namespace quire {
namespace {

class AnswerReactor final : public grpc::ServerUnaryReactor {
 public:
  AnswerReactor(ConnectionTable* connections, const std::string& peer) : call_(connections, peer) {}
  void OnCancel() override { stop_mark_.Raise(); }
  void OnDone() override { delete this; }

  // Raised when the call is cancelled, by its deadline too. The reactor lives until the answer.
  const StopMark& stop_mark() const { return stop_mark_; }

 private:
  const OpenCall call_;
  StopMark stop_mark_;
};

struct Call {
  const CallResources* resources;
  std::string method;
  BytesFunction function;

  void Answer(const Caller& caller, const grpc::ByteBuffer& in, grpc::ByteBuffer* out,
              int64_t started_ns, grpc::ServerUnaryReactor* reactor) const {
    std::string bytes;
    const absl::Status status = function(caller, in, &bytes);
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

// The method in metrics. Other projects' protocols have methods of the same names.
std::string MethodLabel(const std::string& path) {
  const bool foreign = path.rfind("/quire.", 0) != 0 && path.rfind("/grpc.", 0) != 0;
  return foreign ? path.substr(1) : path.substr(path.rfind('/') + 1);
}

}  // namespace

absl::Status CheckReplySize(int64_t limit_bytes, const google::protobuf::MessageLite& reply) {
  if (static_cast<int64_t>(reply.ByteSizeLong()) <= limit_bytes) return absl::OkStatus();
  return ReplyTooLarge(limit_bytes,
                       "ask for less in one call: a shorter text, fewer ids, no offsets");
}

RawService::Unary BytesCall(const CallResources* resources, const char* path, CallCost cost,
                            BytesFunction function) {
  const auto call =
      std::make_shared<const Call>(Call{resources, MethodLabel(path), std::move(function)});
  return [call, cost](const IncomingCall& incoming, const grpc::ByteBuffer* in,
                      grpc::ByteBuffer* out) {
    const int64_t started_ns = SteadyNowNs();
    auto* reactor = new AnswerReactor(&call->resources->connections, incoming.context->peer());
    if (cost == CallCost::kQuick) {
      call->Answer(*incoming.caller, *in, out, started_ns, reactor);
      return static_cast<grpc::ServerUnaryReactor*>(reactor);
    }
    const absl::Status queued = call->resources->text_pool.Run(
        incoming.caller->tenant, in->Length(), [=, caller = incoming.caller] {
          const StopMark::Scope until_call_ends(&reactor->stop_mark());
          call->Answer(*caller, *in, out, started_ns, reactor);
        });
    if (!queued.ok()) call->Finish(queued, started_ns, reactor);
    return static_cast<grpc::ServerUnaryReactor*>(reactor);
  };
}

}  // namespace quire

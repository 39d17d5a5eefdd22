// From the request's bytes to the scheduler thread, and back through the session thread.
#include "server/session/session_call.h"

#include <memory>
#include <utility>

#include "engine/base/clock.h"
#include "server/call/connection_table.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"
#include "server/metrics/metrics.h"
#include "server/session/run_operation.h"

namespace quire {
namespace {

class SessionReactor final : public grpc::ServerUnaryReactor {
 public:
  SessionReactor(ConnectionTable* connections, const std::string& peer)
      : call_(connections, peer) {}
  void OnDone() override { delete this; }

 private:
  const OpenCall call_;
};

struct Method {
  const SessionResources* resources;
  std::string name;  // with its service: others have methods of the same names
  std::string field;
  SessionDecoder decode;
};

// Ends its call exactly once: with an answer, or as refused when it is destroyed without one. The
// operation's completion holds it, and may be dropped at the server's end.
class PendingAnswer {
 public:
  PendingAnswer(std::shared_ptr<const Method> method, grpc::ServerUnaryReactor* reactor,
                grpc::ByteBuffer* out)
      : method_(std::move(method)), reactor_(reactor), out_(out) {}
  ~PendingAnswer() {
    if (reactor_ == nullptr) return;
    End(Refusal(absl::StatusCode::kUnavailable, "DRAINING",
                "the server is going away; retry elsewhere", 1));
  }
  PendingAnswer(const PendingAnswer&) = delete;
  PendingAnswer& operator=(const PendingAnswer&) = delete;

  void Answer(const SessionAnswer& answer, const SessionEncoder& encode) {
    if (!answer.status.ok()) return End(FromSessions(answer.status, method_->field));
    const std::string bytes = encode(answer.sessions, SteadyNowNs());
    *out_ = ToByteBuffer(bytes.data(), bytes.size());
    End(absl::OkStatus());
  }
  void End(const absl::Status& status) {
    method_->resources->calls.metrics.RpcFinished(
        method_->name, static_cast<int>(status.code()),
        static_cast<double>(SteadyNowNs() - started_ns_) * 1e-9);
    std::exchange(reactor_, nullptr)->Finish(ToGrpcStatus(status));
  }

 private:
  const std::shared_ptr<const Method> method_;
  const int64_t started_ns_ = SteadyNowNs();
  grpc::ServerUnaryReactor* reactor_;
  grpc::ByteBuffer* const out_;
};

}  // namespace

RawService::Unary SessionCall(const SessionResources* resources, const char* path,
                              const char* field, SessionDecoder decode) {
  const auto method = std::make_shared<const Method>(
      Method{resources, std::string(path).substr(1), field, std::move(decode)});
  return [method](const IncomingCall& incoming, const grpc::ByteBuffer* in,
                  grpc::ByteBuffer* out) -> grpc::ServerUnaryReactor* {
    const SessionResources& resources = *method->resources;
    auto* reactor = new SessionReactor(&resources.calls.connections, incoming.context->peer());
    const auto pending = std::make_shared<PendingAnswer>(method, reactor, out);
    absl::StatusOr<SessionPlan> plan = method->decode(*in, incoming.caller->tenant);
    if (!plan.ok()) {
      pending->End(plan.status());
      return reactor;
    }
    RunOperation(resources.engine, resources.thread, std::move(plan->operation),
                 [pending, encode = std::move(plan->encode)](const SessionAnswer& answer) {
                   pending->Answer(answer, encode);
                 });
    return reactor;
  };
}

}  // namespace quire

// From the request's bytes to the scheduler thread, and back through the session thread.
#include "server/session/session_call.h"

#include <memory>
#include <utility>

#include "engine/base/clock.h"
#include "server/call/connection_table.h"
#include "server/call/serial_thread.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

class AskReactor final : public grpc::ServerUnaryReactor {
 public:
  AskReactor(ConnectionTable* connections, const std::string& peer) : call_(connections, peer) {}
  void OnDone() override { delete this; }

 private:
  const OpenCall call_;
};

struct Method {
  StreamHost* host;
  std::string name;
  SessionDecoder decode;
};

// Ends its call exactly once: with an answer, or, when nobody made one, as refused. Shared by the
// function on its way to the scheduler thread and the one on its way back; whichever is dropped at
// the server's end may be the last to hold it.
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

  void Answer(const absl::StatusOr<std::vector<SessionInfo>>& found, const SessionEncoder& encode) {
    if (!found.ok()) return End(found.status());
    const std::string bytes = encode(*found, SteadyNowNs());
    *out_ = ToByteBuffer(bytes.data(), bytes.size());
    End(absl::OkStatus());
  }
  void End(const absl::Status& status) {
    method_->host->metrics->RpcFinished(method_->name, static_cast<int>(status.code()),
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

RawService::Unary SessionCall(StreamHost* host, const char* path, SessionDecoder decode) {
  const std::string full(path);
  const auto method = std::make_shared<const Method>(
      Method{host, full.substr(full.rfind('/') + 1), std::move(decode)});
  return [method](grpc::CallbackServerContext* context, const grpc::ByteBuffer* in,
                  grpc::ByteBuffer* out) -> grpc::ServerUnaryReactor* {
    StreamHost* const host = method->host;
    auto* reactor = new AskReactor(host->connections, context->peer());
    const auto answer = std::make_shared<PendingAnswer>(method, reactor, out);
    absl::StatusOr<SessionPlan> decoded = method->decode(*in, host->options.identity(*context));
    if (!decoded.ok()) {
      answer->End(decoded.status());
      return reactor;
    }
    const auto plan = std::make_shared<const SessionPlan>(*std::move(decoded));
    host->engine->Ask([host, answer, plan](SessionStore& sessions, int64_t now_ns) {
      host->session_thread->Post([answer, plan, found = plan->ask(sessions, now_ns)] {
        answer->Answer(found, plan->encode);
      });
    });
    return reactor;
  };
}

}  // namespace quire

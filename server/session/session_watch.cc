// One write in flight; the latest state waits after it if the reader does not have it yet.
#include "server/session/session_watch.h"

#include <memory>
#include <optional>
#include <utility>

#include "engine/base/clock.h"
#include "quire/v1/sessions.pb.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/session/session_stream.h"
#include "server/session/session_watches.h"

namespace quire {
namespace {

class WatchCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                        public SessionStream,
                        public SessionWatcher {
 public:
  WatchCall(SessionResources* resources, const IncomingCall& call)
      : SessionStream(resources, call, "quire.v1.Sessions/Watch") {}

  void Start(const grpc::ByteBuffer& bytes) {
    v1::WatchSessionRequest request;
    absl::Status status = ParseMessage(bytes, &request);
    if (status.ok()) status = CheckName("session_id", request.session_id());
    name_ = request.session_id();
    Begin();
    Post([this, status] {
      if (!status.ok()) return End(status);
      Look();
    });
  }

  void OnWriteDone(bool ok) override {
    Post([this, ok] {
      writing_ = false;
      if (!ok) return End(absl::CancelledError("the watcher is gone"));
      Pump();
    });
  }
  void OnCancel() override {
    Post([this] { End(absl::CancelledError("the watcher is gone")); });
  }
  void OnDone() override { Done(); }

  // The scheduler thread.
  void Changed(const SessionInfo& info) override {
    Post([this, info] {
      // Changes before the first look are older than the state that the look finds.
      if (looked_) Show(info);
    });
  }

 private:
  // Watches first, so that it misses no change after the look.
  void Look() {
    const auto self = std::static_pointer_cast<WatchCall>(shared_from_this());
    if (!resources_->watches.Add(tenant_, name_, self)) {
      return End(Refusal(absl::StatusCode::kUnavailable, "TOO_MANY_STREAMS",
                         "too many sessions are watched; retry when some watches have ended", 1));
    }
    Run({.tenant = tenant_, .name = name_, .action = SessionOperation::Get()},
        [this](const SessionAnswer& answer) {
          if (!answer.status.ok()) return End(FromSessions(answer.status));
          looked_ = true;
          Show(answer.sessions.front());
        });
  }

  void Show(const SessionInfo& info) {
    latest_ = info;
    Pump();
  }

  void Pump() {
    if (writing_ || ended() || !latest_.has_value()) return;
    v1::Session message;
    EncodeSession(*latest_, SteadyNowNs(), &message);
    const bool last = latest_->state == SessionState::kClosed;
    latest_.reset();
    const std::string bytes = message.SerializeAsString();
    buffer_ = ToByteBuffer(bytes.data(), bytes.size());
    if (last) {
      BeginEnd(absl::OkStatus());
      return StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
    }
    writing_ = true;
    StartWrite(&buffer_);
  }

  void ReleaseAll() override { resources_->watches.Remove(tenant_, name_, this); }
  void FinishWith(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  SessionName name_;  // constant after Start
  // The session thread's.
  bool looked_ = false;
  std::optional<SessionInfo> latest_;  // not sent yet
  grpc::ByteBuffer buffer_;            // of the write in flight
  bool writing_ = false;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatch(SessionResources* resources,
                                                       const IncomingCall& call,
                                                       const grpc::ByteBuffer* request) {
  const auto made = std::make_shared<WatchCall>(resources, call);
  made->Start(*request);
  return made.get();
}

}  // namespace quire

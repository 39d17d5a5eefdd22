// One write in flight; the session thread reads the next batch when it is done.
#include "server/kv_events/kv_event_stream.h"

#include <memory>
#include <utility>

#include "server/call/status_codec.h"
#include "server/session/session_stream.h"

namespace quire {
namespace {

// The reasons for a program; the log of the engine has none.
absl::Status WithReason(absl::Status status) {
  if (status.code() == absl::StatusCode::kOutOfRange) AddReason("KV_EVENTS_MISSED", &status);
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    AddReason("TOO_MANY_STREAMS", &status);
  }
  return status;
}

class KvEventStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                            public SessionStream {
 public:
  KvEventStream(SessionResources* resources, const IncomingCall& call,
                const KvEventProtocol* protocol)
      : SessionStream(resources, call, protocol->method), protocol_(protocol) {}

  void Start(const grpc::ByteBuffer& bytes) {
    Begin();
    Post([this, start = protocol_->read(bytes)] {
      if (!start.ok()) return End(start.status());
      Subscribe(*start);
    });
  }

  void OnWriteDone(bool ok) override {
    Post([this, ok] {
      writing_ = false;
      patience_.Cancel();
      if (!ok) return End(absl::CancelledError("the subscriber is gone"));
      if (failed_) return End(absl::OkStatus());
      Pump();
    });
  }
  void OnCancel() override {
    Post([this] { End(absl::CancelledError("the subscriber is gone")); });
  }
  void OnDone() override { Done(); }

 private:
  void Subscribe(const KvSubscriptionStart& start) {
    if (ended()) return;
    auto subscription = resources_->engine.kv_events().Subscribe(
        tenant_, start, [this] { Post([this] { Pump(); }); });
    if (!subscription.ok()) return End(WithReason(subscription.status()));
    subscription_ = *std::move(subscription);
    // A subscriber that misses nothing hears nothing for now, and gateways wait for the headers.
    StartSendInitialMetadata();
    Pump();
  }

  void Pump() {
    if (writing_ || ended()) return;
    const auto batch = subscription_->Next();
    if (!batch.ok()) return Fail(WithReason(batch.status()));
    if (*batch == nullptr) return;
    Send(protocol_->write(**batch));
  }

  void Fail(const absl::Status& status) {
    if (protocol_->failure == nullptr) return End(status);
    failed_ = true;
    Send(protocol_->failure(status));
  }

  void Send(const std::string& bytes) {
    buffer_ = ToByteBuffer(bytes.data(), bytes.size());
    writing_ = true;
    SetAlarm(patience_, resources_->calls.options.slow_reader_timeout_seconds, [this] {
      if (writing_) {
        End(Refusal(absl::StatusCode::kResourceExhausted, "SLOW_READER",
                    "the subscriber did not read its events in time"));
      }
    });
    StartWrite(&buffer_);
  }

  void ReleaseAll() override {
    patience_.Cancel();
    subscription_.reset();
  }
  void FinishWith(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  const KvEventProtocol* const protocol_;
  // The session thread's.
  std::unique_ptr<KvSubscription> subscription_;
  CallAlarm patience_;       // for the write in flight
  grpc::ByteBuffer buffer_;  // of the write in flight
  bool writing_ = false;
  bool failed_ = false;  // the last message is on its way
};

}  // namespace

RawService::ServerStreaming KvEventsCall(SessionResources* resources, KvEventProtocol protocol) {
  return [resources, protocol = std::make_shared<const KvEventProtocol>(std::move(protocol))](
             const IncomingCall& call, const grpc::ByteBuffer* request) {
    const auto made = std::make_shared<KvEventStream>(resources, call, protocol.get());
    made->Start(*request);
    return made.get();
  };
}

}  // namespace quire

// The state of a call belongs to the session thread. The scheduler's answer travels in an object
// that answers by itself when it is dropped.
#include "server/kv_events/cache_flush.h"

#include <memory>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "server/call/status_codec.h"
#include "server/session/session_stream.h"

namespace quire {
namespace {

constexpr double kPauseSeconds = 0.1;

class PendingFlush {
 public:
  using Done = std::function<void(const absl::StatusOr<FlushedCache>&)>;

  explicit PendingFlush(Done done) : done_(std::move(done)) {}
  ~PendingFlush() {
    Answer(Refusal(absl::StatusCode::kUnavailable, "DRAINING",
                   "the server is going away; retry elsewhere", 1));
  }
  PendingFlush(const PendingFlush&) = delete;
  PendingFlush& operator=(const PendingFlush&) = delete;

  void Answer(const absl::StatusOr<FlushedCache>& answer) {
    if (const Done done = std::exchange(done_, nullptr)) done(answer);
  }

 private:
  Done done_;
};

class FlushReactor final : public grpc::ServerUnaryReactor, public SessionStream {
 public:
  FlushReactor(SessionResources* resources, const IncomingCall& call,
               const CacheFlushProtocol* protocol, grpc::ByteBuffer* response)
      : SessionStream(resources, call, protocol->method),
        protocol_(protocol),
        response_(response) {}

  void Start(const grpc::ByteBuffer& bytes) {
    Begin();
    Post([this, request = protocol_->read(*caller_, bytes)] {
      if (!request.ok()) return End(request.status());
      flush_ = request->flush;
      end_ns_ = SteadyNowNs() + static_cast<int64_t>(request->seconds * 1e9);
      Flush();
    });
  }

  void OnCancel() override {
    Post([this] { End(absl::CancelledError("the call was cancelled")); });
  }
  void OnDone() override { Done(); }

 private:
  void Flush() {
    if (ended()) return;
    const auto pending = std::make_shared<PendingFlush>(
        [self = shared_from_this(), this](const absl::StatusOr<FlushedCache>& flushed) {
          Post([this, flushed] { Flushed(flushed); });
        });
    resources_->engine.FlushCache(
        flush_, [pending](const FlushedCache& flushed) { pending->Answer(flushed); });
  }

  void Flushed(const absl::StatusOr<FlushedCache>& answer) {
    if (ended()) return;
    if (!answer.ok()) return End(answer.status());
    total_.blocks += answer->blocks;
    total_.pages += answer->pages;
    total_.kept_blocks = answer->kept_blocks;
    total_.kept_pages = answer->kept_pages;
    if (total_.kept_blocks + total_.kept_pages > 0 && SteadyNowNs() < end_ns_) {
      return SetAlarm(pause_, kPauseSeconds, [this] { Flush(); });
    }
    Log(Severity::kInfo, "flush: KV of the prefix cache is dropped",
        {{"tenant", caller_->tenant_name},
         {"key", caller_->key_id},
         {"blocks", total_.blocks},
         {"pages", total_.pages}});
    const std::string bytes = protocol_->write(total_);
    *response_ = ToByteBuffer(bytes.data(), bytes.size());
    End(absl::OkStatus());
  }

  void ReleaseAll() override { pause_.Cancel(); }
  void FinishWith(const absl::Status& status) override {
    ServerUnaryReactor::Finish(ToGrpcStatus(status));
  }

  const CacheFlushProtocol* const protocol_;
  grpc::ByteBuffer* const response_;
  // The session thread's.
  CallAlarm pause_;
  CacheFlush flush_;
  int64_t end_ns_ = 0;
  FlushedCache total_;
};

}  // namespace

RawService::Unary CacheFlushCall(SessionResources* resources, CacheFlushProtocol protocol) {
  return
      [resources, protocol = std::make_shared<const CacheFlushProtocol>(std::move(protocol))](
          const IncomingCall& call, const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
        const auto made = std::make_shared<FlushReactor>(resources, call, protocol.get(), response);
        made->Start(*request);
        return made.get();
      };
}

}  // namespace quire

// Check is one function; Watch is a stream that writes when the status differs from the last one
// sent.
#include "server/front/health_service.h"

#include <atomic>
#include <utility>

#include "grpc/health/v1/health.pb.h"
#include "server/call/connection_table.h"
#include "server/call/message_call.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"

namespace quire {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// The board's mutex guards all state.
class HealthWatch final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  HealthWatch(HealthBoard* board, ConnectionTable* connections, const std::string& peer)
      : call_(connections, peer) {
    board_.store(board, std::memory_order_release);
  }

  void Start(const grpc::ByteBuffer& bytes) {
    HealthCheckRequest request;
    const absl::Status status = ParseMessage(bytes, &request);
    std::lock_guard lock(board()->mutex_);
    if (!status.ok()) return End(ToGrpcStatus(status));
    if (board()->watches_.size() >= HealthBoard::kMaxWatches) {
      return End(ToGrpcStatus(Refusal(absl::StatusCode::kUnavailable, "TOO_MANY_STREAMS",
                                      "too many clients watch the health; retry later", 60)));
    }
    known_ = board()->Knows(request.service());
    board()->watches_.insert(this);
    Send();
  }
  void Send() {
    const int status = !known_             ? HealthCheckResponse::SERVICE_UNKNOWN
                       : board()->serving_ ? HealthCheckResponse::SERVING
                                           : HealthCheckResponse::NOT_SERVING;
    if (writing_ || ended_ || status == sent_) return;
    sent_ = status;
    HealthCheckResponse response;
    response.set_status(static_cast<HealthCheckResponse::ServingStatus>(status));
    const std::string bytes = response.SerializeAsString();
    buffer_ = ToByteBuffer(bytes.data(), bytes.size());
    writing_ = true;
    StartWrite(&buffer_);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(board()->mutex_);
    writing_ = false;
    if (!ok) return End(grpc::Status::CANCELLED);
    Send();
  }
  void OnCancel() override {
    std::lock_guard lock(board()->mutex_);
    End(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    {
      std::lock_guard lock(board()->mutex_);
      board()->watches_.erase(this);
    }
    delete this;
  }

 private:
  HealthBoard* board() const { return board_.load(std::memory_order_acquire); }
  void End(const grpc::Status& status) {
    if (!std::exchange(ended_, true)) Finish(status);
  }

  // Constant. An atomic, because it passes the object from the constructing thread to the callbacks
  // in an order that the thread sanitizer sees; it does not see the library's.
  std::atomic<HealthBoard*> board_{nullptr};
  const OpenCall call_;
  grpc::ByteBuffer buffer_;  // of the write in flight
  bool known_ = false;
  bool writing_ = false;
  bool ended_ = false;
  int sent_ = -1;
};

HealthBoard::HealthBoard(std::vector<std::string> services)
    : services_(services.begin(), services.end()) {}

bool HealthBoard::Serving() {
  std::lock_guard lock(mutex_);
  return serving_;
}

void HealthBoard::Set(bool serving) {
  std::lock_guard lock(mutex_);
  serving_ = serving;
  for (HealthWatch* watch : watches_) watch->Send();
}

std::unique_ptr<RawService> MakeHealthService(const CallResources* resources, HealthBoard* board) {
  auto service = std::make_unique<RawService>(&resources->door);
  AddCall<HealthCheckRequest, HealthCheckResponse>(
      service.get(), resources, "/grpc.health.v1.Health/Check", CallCost::kQuick,
      [board](const HealthCheckRequest& request, HealthCheckResponse* response) {
        if (!board->Knows(request.service())) {
          return absl::NotFoundError("service: this server has no service of this name");
        }
        response->set_status(board->Serving() ? HealthCheckResponse::SERVING
                                              : HealthCheckResponse::NOT_SERVING);
        return absl::OkStatus();
      });
  service->Add("/grpc.health.v1.Health/Watch",
               RawService::ServerStreaming(
                   [resources, board](const IncomingCall& call, const grpc::ByteBuffer* request) {
                     auto* watch =
                         new HealthWatch(board, &resources->connections, call.context->peer());
                     watch->Start(*request);
                     return watch;
                   }));
  return service;
}

}  // namespace quire

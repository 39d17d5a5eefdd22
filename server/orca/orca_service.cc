// A stream of load reports: a write, then a timer, then the next write.
#include "server/orca/orca_service.h"

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include "server/call/connection_table.h"
#include "server/call/status_codec.h"
#include "server/call/tenant_quota.h"
#include "server/call/wire_check.h"
#include "server/orca/load_report.h"
#include "xds/service/orca/v3/orca.pb.h"

namespace quire {
namespace {

struct Orca {
  const CallResources* calls;
  const Engine* engine;
  int32_t max_rows = 0;
  std::shared_ptr<TenantQuota> quota =
      std::make_shared<TenantQuota>(kMaxReportStreams, kMaxReportStreams / 2);
};

double IntervalSeconds(const xds::service::orca::v3::OrcaLoadReportRequest& request) {
  const double seconds = static_cast<double>(request.report_interval().seconds()) +
                         request.report_interval().nanos() * 1e-9;
  return std::clamp(seconds, kMinReportSeconds, kMaxReportSeconds);
}

// Held by the library from Start to OnDone, and by a timer that has not gone off.
class ReportStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public std::enable_shared_from_this<ReportStream> {
 public:
  ReportStream(const Orca& orca, const IncomingCall& call)
      : orca_(orca),
        tenant_(call.caller->tenant),
        call_(&orca.calls->connections, call.context->peer()) {
    published_.store(this, std::memory_order_release);
  }
  ~ReportStream() override { orca_.quota->Leave(tenant_); }

  void Start(const grpc::ByteBuffer& bytes) {
    const std::lock_guard lock(mutex_);
    self_ = shared_from_this();
    if (!orca_.quota->Enter(tenant_)) {
      return End(ToGrpcStatus(Refusal(absl::StatusCode::kUnavailable, "TOO_MANY_STREAMS",
                                      "too many streams of load reports; retry later", 1)));
    }
    xds::service::orca::v3::OrcaLoadReportRequest request;
    const absl::Status status = ParseMessage(bytes, &request);
    if (!status.ok()) return End(ToGrpcStatus(status));
    interval_seconds_ = IntervalSeconds(request);
    Send();
  }

  void OnWriteDone(bool ok) override { published_.load(std::memory_order_acquire)->Wrote(ok); }
  void OnCancel() override { published_.load(std::memory_order_acquire)->Cancelled(); }
  void OnDone() override { published_.load(std::memory_order_acquire)->Done(); }

 private:
  void Wrote(bool ok) {
    const std::lock_guard lock(mutex_);
    if (!ok) return End(grpc::Status::CANCELLED);
    if (ended_) return;
    const auto due = std::chrono::system_clock::now() +
                     std::chrono::microseconds(static_cast<int64_t>(interval_seconds_ * 1e6));
    // One alarm for each wait: the function of the one before may still be returning. An alarm
    // keeps its function until it is destroyed itself, so the function gives up its hold of the
    // stream.
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(due, [this, self = self_](bool in_time) mutable {
      const auto held = std::move(self);
      if (!in_time) return;
      const std::lock_guard lock(mutex_);
      Send();
    });
  }
  void Cancelled() {
    const std::lock_guard lock(mutex_);
    End(grpc::Status::CANCELLED);
  }
  void Done() {
    std::shared_ptr<ReportStream> last;
    const std::lock_guard lock(mutex_);
    last = std::move(self_);
    alarm_.reset();  // cancels it
    // `lock` is released before `last`: locals go in the reverse order.
  }
  // Under mutex_.
  void Send() {
    if (ended_) return;
    const std::string bytes = LoadReportOf(orca_.engine->Stats(), orca_.max_rows,
                                           orca_.engine->PredictTtftSeconds(tenant_, 1))
                                  .SerializeAsString();
    buffer_ = ToByteBuffer(bytes.data(), bytes.size());
    StartWrite(&buffer_);
  }
  void End(const grpc::Status& status) {
    if (!std::exchange(ended_, true)) Finish(status);
  }

  const Orca orca_;
  const TenantId tenant_;
  const OpenCall call_;
  // As in HealthWatch.
  std::atomic<ReportStream*> published_{nullptr};
  std::mutex mutex_;
  std::shared_ptr<ReportStream> self_;
  std::unique_ptr<grpc::Alarm> alarm_;
  grpc::ByteBuffer buffer_;  // of the write in flight
  double interval_seconds_ = kMinReportSeconds;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<RawService> MakeOrcaService(const CallResources* calls, const Engine* engine,
                                            int32_t max_rows) {
  auto service = std::make_unique<RawService>(&calls->door);
  const Orca orca{.calls = calls, .engine = engine, .max_rows = max_rows};
  service->Add("/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics",
               RawService::ServerStreaming(
                   [orca](const IncomingCall& call, const grpc::ByteBuffer* request) {
                     const auto stream = std::make_shared<ReportStream>(orca, call);
                     stream->Start(*request);
                     return stream.get();
                   }));
  return service;
}

}  // namespace quire

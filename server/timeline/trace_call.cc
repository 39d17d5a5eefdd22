// Waits by an alarm, then writes one chunk at a time. The session thread owns the call's state, as
// that of all streaming calls but Generate.
#include "server/timeline/trace_call.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/timeline.h"
#include "quire/v1/control.pb.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/session/session_stream.h"
#include "server/timeline/step_breakdown.h"
#include "server/timeline/trace_file.h"
#include "version/build_facts.h"

namespace quire {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 19;
// About 50 MiB while it records.
constexpr size_t kMaxEvents = 400'000;
constexpr double kDefaultSeconds = 2;
constexpr double kMinSeconds = 0.1;
constexpr double kMaxSeconds = 60;
constexpr uint32_t kMaxProfiledSteps = 100'000;

absl::Status Check(const v1::TraceRequest& request) {
  if (request.has_seconds() &&
      !(request.seconds() >= kMinSeconds && request.seconds() <= kMaxSeconds)) {
    return InvalidField("seconds", "must be 0.1 to 60");
  }
  if (request.profile_steps() > kMaxProfiledSteps) {
    return InvalidField("profile_steps", "must be at most 100000");
  }
  return absl::OkStatus();
}

class TraceCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public SessionStream {
 public:
  TraceCall(SessionResources* resources, const IncomingCall& call)
      : SessionStream(resources, call, "Trace") {}

  void Start(const grpc::ByteBuffer& bytes) {
    v1::TraceRequest request;
    absl::Status status = ParseMessage(bytes, &request);
    if (status.ok()) status = Check(request);
    Begin();
    Post([this, status, request] {
      if (!status.ok()) return End(status);
      Record(request);
    });
  }

  void OnWriteDone(bool ok) override {
    Post([this, ok] {
      if (!ok) return End(absl::CancelledError("the call was cancelled"));
      Send();
    });
  }
  void OnCancel() override {
    Post([this] { End(absl::CancelledError("the call was cancelled")); });
  }
  void OnDone() override { Done(); }

 private:
  void Record(const v1::TraceRequest& request) {
    if (resources_->tracing || !Timeline::Start(kMaxEvents)) {
      return End(Refusal(absl::StatusCode::kUnavailable, "TRACE_RUNNING",
                         "another trace is being recorded; retry when it has ended", 1));
    }
    resources_->tracing = entered_ = recording_ = true;
    begin_ns_ = SteadyNowNs();
    before_ = resources_->engine.Stats();
    const double seconds = request.has_seconds() ? request.seconds() : kDefaultSeconds;
    Log(Severity::kInfo, "trace",
        {{"tenant", caller_->tenant_name},
         {"key", caller_->key_id},
         {"seconds", seconds},
         {"profile_steps", int64_t{request.profile_steps()}}});
    profiling_ = request.profile_steps() > 0;
    if (profiling_) {
      resources_->engine.ProfileSteps(static_cast<int32_t>(request.profile_steps()),
                                      request.uncaptured());
    }
    SetAlarm(end_, seconds, [this] { StopRecording(); });
  }

  // Steps that were asked for and have not run are not profiled.
  void StopProfiling() {
    if (std::exchange(profiling_, false)) resources_->engine.ProfileSteps(0, false);
  }

  void StopRecording() {
    if (ended()) return;
    recording_ = false;
    StopProfiling();
    SetAlarm(deadline_, resources_->calls.options.default_deadline_seconds, [this] {
      End(Refusal(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                  "the trace was not read in time"));
    });
    const int64_t end_ns = SteadyNowNs();
    Timeline::Recording recording = Timeline::Stop();
    v1::StepBreakdown* breakdown = last_.mutable_breakdown();
    FillBreakdown(before_, resources_->engine.Stats(),
                  static_cast<double>(end_ns - begin_ns_) * 1e-9, breakdown);
    breakdown->set_dropped_events(recording.dropped);
    file_.emplace(std::move(recording), begin_ns_,
                  std::string("quire ") + ThisBuild().version + ", " + resources_->model.name +
                      ", " + resources_->model.device_description);
    Send();
  }

  // The breakdown follows the file.
  void Send() {
    if (ended()) return;
    v1::TraceChunk chunk;
    if (!file_->Next(kChunkBytes, chunk.mutable_json())) {
      if (std::exchange(sent_last_, true)) return End(absl::OkStatus());
      chunk = last_;
    }
    const std::string bytes = chunk.SerializeAsString();
    buffer_ = ToByteBuffer(bytes.data(), bytes.size());
    StartWrite(&buffer_);
  }

  void ReleaseAll() override {
    end_.Cancel();
    deadline_.Cancel();
    StopProfiling();
    if (std::exchange(recording_, false)) Timeline::Stop();
    file_.reset();
    if (std::exchange(entered_, false)) resources_->tracing = false;
  }
  void FinishWith(const absl::Status& status) override {
    ServerWriteReactor::Finish(ToGrpcStatus(status));
  }

  // The session thread's.
  CallAlarm end_;
  CallAlarm deadline_;    // for the reader of the file
  bool entered_ = false;  // counts as the open Trace call
  bool recording_ = false;
  bool profiling_ = false;
  int64_t begin_ns_ = 0;
  EngineStats before_;
  v1::TraceChunk last_;
  bool sent_last_ = false;
  std::optional<TraceFile> file_;
  grpc::ByteBuffer buffer_;  // of the write in flight
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartTrace(SessionResources* resources,
                                                       const IncomingCall& call,
                                                       const grpc::ByteBuffer* request) {
  const auto made = std::make_shared<TraceCall>(resources, call);
  made->Start(*request);
  return made.get();
}

}  // namespace quire

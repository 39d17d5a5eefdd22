// Batches, deadlines and backoff. The waits are the exporter's alone.
#include "server/tracing/otlp_exporter.h"

#include <google/protobuf/arena.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "opentelemetry/trace_service.grpc.pb.h"
#include "server/metrics/otlp_metrics.h"

namespace quire {
namespace {

namespace otlp = opentelemetry::proto::collector::trace::v1;
using std::chrono::nanoseconds;

// A span has some 300 bytes, so a batch is far below the 4 MiB that a collector takes.
constexpr int64_t kBatchSpans = 1024;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLingerNs = kSecond;
constexpr int64_t kCallNs = 5 * kSecond;
constexpr int64_t kFirstBackoffNs = kSecond / 5;
constexpr int64_t kLastBackoffNs = 5 * kSecond;
constexpr int64_t kGiveUpNs = 60 * kSecond;  // after a batch's first attempt
constexpr int64_t kFlushNs = kSecond;        // at the end of the process
constexpr int64_t kLogEveryNs = 60 * kSecond;
constexpr size_t kMaxMessageBytes = 200;  // of the collector's words in the log

// The codes after which OTLP lets a client send the same spans again. RESOURCE_EXHAUSTED is one
// only with a delay that we do not read; a collector that is full gets the next batch later anyway.
bool IsWorthRetrying(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss: return true;
    default: return false;
  }
}

int64_t UnixOffsetNs() {
  const auto unix_now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<nanoseconds>(unix_now).count() - SteadyNowNs();
}

void AddAttribute(const char* key, const std::string& value, otlp::Resource* resource) {
  otlp::KeyValue* pair = resource->add_attributes();
  pair->set_key(key);
  pair->mutable_value()->set_string_value(value);
}

const char* AdviceFor(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return "check that a collector listens at --otlp-endpoint, and whether it wants https://";
    case absl::StatusCode::kDeadlineExceeded:
      return "the collector took the call and did not answer: check its load and its own exporters";
    case absl::StatusCode::kUnimplemented:
      return "check that --otlp-endpoint is the collector's port for OTLP over gRPC, usually 4317";
    default: return "check the collector's log";
  }
}

}  // namespace

struct OtlpExporter::Connection {
  explicit Connection(const OtlpEndpoint& endpoint) {
    grpc::ChannelArguments arguments;
    // A proxy of the environment is meant for the web.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // Export repeats calls itself, within its bounds.
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5'000);
    arguments.SetUserAgentPrefix("quire-server");
    const auto credentials = endpoint.tls ? grpc::SslCredentials(grpc::SslCredentialsOptions())
                                          : grpc::InsecureChannelCredentials();
    channel = grpc::CreateCustomChannel(endpoint.target(), credentials, arguments);
    stub = otlp::TraceService::NewStub(channel);
  }

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<otlp::TraceService::Stub> stub;
};

OtlpExporter::OtlpExporter(const TracerOptions& options, RecordQueue* queue, OtlpMetrics* metrics)
    : options_(options),
      encoder_(options.model),
      instance_id_(HexOf(NewTraceId())),
      queue_(queue),
      metrics_(metrics),
      connection_(std::make_unique<Connection>(options.endpoint)),
      thread_([this] { Run(); }) {}

OtlpExporter::~OtlpExporter() {
  queue_->Close();
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, nanoseconds(kFlushNs), [this] { return ended_; });
    given_up_ = true;
    if (in_flight_ != nullptr) in_flight_->TryCancel();
    changed_.notify_all();
  }
  thread_.join();
  metrics_->Count(OtlpMetrics::Outcome::kDropped, late_spans_);
  if (late_spans_ == 0) return;
  Log(Severity::kWarning, "OTLP: the server ended before the collector took all spans",
      {{"dropped_spans", late_spans_}});
}

void OtlpExporter::Run() {
  for (;;) {
    const std::vector<RequestRecord> batch = queue_->Take(kBatchSpans, kLingerNs);
    if (batch.empty()) break;
    google::protobuf::Arena arena;
    const ExportRequest* request = Encode(batch, &arena);
    int64_t spans = 0;
    for (const RequestRecord& record : batch) spans += NumSpans(record);
    Export(*request, spans);
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

OtlpExporter::ExportRequest* OtlpExporter::Encode(const std::vector<RequestRecord>& batch,
                                                  google::protobuf::Arena* arena) const {
  auto* request = google::protobuf::Arena::CreateMessage<ExportRequest>(arena);
  otlp::ResourceSpans* spans = request->add_resource_spans();
  otlp::Resource* resource = spans->mutable_resource();
  AddAttribute("service.name", options_.service_name, resource);
  AddAttribute("service.version", options_.service_version, resource);
  AddAttribute("service.instance.id", instance_id_, resource);
  otlp::KeyValue* pid = resource->add_attributes();
  pid->set_key("process.pid");
  pid->mutable_value()->set_int_value(getpid());
  otlp::ScopeSpans* scope = spans->add_scope_spans();
  scope->mutable_scope()->set_name("quire");
  scope->mutable_scope()->set_version(options_.service_version);
  // Read once: a step of the wall clock moves whole traces, and their spans still nest.
  const int64_t unix_offset_ns = UnixOffsetNs();
  for (const RequestRecord& record : batch) encoder_.Append(record, unix_offset_ns, scope);
  return request;
}

void OtlpExporter::Export(const ExportRequest& request, int64_t spans) {
  const int64_t give_up_ns = SteadyNowNs() + kGiveUpNs;
  for (int64_t backoff_ns = kFirstBackoffNs;;
       backoff_ns = std::min(2 * backoff_ns, kLastBackoffNs)) {
    int64_t rejected_spans = 0;
    const absl::Status status = Call(request, &rejected_spans);
    if (status.ok()) return Succeeded(spans, rejected_spans);
    if (GivenUp()) break;
    const bool last = !IsWorthRetrying(status.code()) || SteadyNowNs() + backoff_ns > give_up_ns;
    Failed(status, last ? spans : 0);
    if (last) return;
    if (!WaitToRetry(backoff_ns)) break;
  }
  late_spans_ += spans;
}

bool OtlpExporter::GivenUp() {
  const std::lock_guard lock(mutex_);
  return given_up_;
}

absl::Status OtlpExporter::Call(const ExportRequest& request, int64_t* rejected_spans) {
  grpc::ClientContext context;
  {
    const std::lock_guard lock(mutex_);
    if (given_up_) return absl::CancelledError("the server is ending");
    in_flight_ = &context;
    const int64_t patience_ns = stopping_ ? kFlushNs : kCallNs;
    context.set_deadline(std::chrono::system_clock::now() + nanoseconds(patience_ns));
  }
  otlp::ExportTraceServiceResponse response;
  const grpc::Status status = connection_->stub->Export(&context, request, &response);
  {
    const std::lock_guard lock(mutex_);
    in_flight_ = nullptr;
  }
  *rejected_spans = response.partial_success().rejected_spans();
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

bool OtlpExporter::WaitToRetry(int64_t backoff_ns) {
  std::unique_lock lock(mutex_);
  if (stopping_) return false;
  // A stop ends the wait, and leaves time for one more attempt.
  changed_.wait_for(lock, nanoseconds(backoff_ns), [this] { return stopping_; });
  return !given_up_;
}

void OtlpExporter::Succeeded(int64_t spans, int64_t rejected_spans) {
  const int64_t rejected = std::clamp<int64_t>(rejected_spans, 0, spans);
  metrics_->Count(OtlpMetrics::Outcome::kSent, spans - rejected);
  metrics_->Count(OtlpMetrics::Outcome::kFailed, rejected);
  if (!std::exchange(failing_, false)) return;
  Log(Severity::kInfo, "OTLP: the collector takes spans again",
      {{"endpoint", connection_->channel != nullptr ? options_.endpoint.host : ""},
       {"dropped_spans", metrics_->Total(OtlpMetrics::Outcome::kDropped)},
       {"failed_spans", metrics_->Total(OtlpMetrics::Outcome::kFailed)}});
}

// One line a minute at most: a collector may fail for days.
void OtlpExporter::Failed(const absl::Status& status, int64_t spans) {
  metrics_->Count(OtlpMetrics::Outcome::kFailed, spans);
  failing_ = true;
  const int64_t now_ns = SteadyNowNs();
  if (logged_ns_ != 0 && now_ns - logged_ns_ < kLogEveryNs) return;
  logged_ns_ = now_ns;
  const std::string message(status.message().data(), status.message().size());
  Log(Severity::kWarning, "OTLP: the collector does not take spans; requests are not affected",
      {{"endpoint", options_.endpoint.host + ":" + std::to_string(options_.endpoint.port)},
       {"code", absl::StatusCodeToString(status.code())},
       {"message", message.substr(0, kMaxMessageBytes)},
       {"dropped_spans", metrics_->Total(OtlpMetrics::Outcome::kDropped)},
       {"failed_spans", metrics_->Total(OtlpMetrics::Outcome::kFailed)},
       {"advice", AdviceFor(status.code())}});
}

}  // namespace quire

// OtlpExporter: the thread that makes spans of queued records and sends them to a collector. One
// export is in flight at a time. A collector that hangs, refuses or is absent costs spans, which
// are counted, and no request.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/tracing/record_queue.h"
#include "server/tracing/span_encoder.h"
#include "server/tracing/tracer.h"

namespace grpc {
class ClientContext;
}
namespace google::protobuf {
class Arena;
}
namespace opentelemetry::proto::collector::trace::v1 {
class ExportTraceServiceRequest;
}

namespace quire {

class OtlpExporter {
 public:
  // Starts the thread; connects with the first spans. `queue` and `metrics` outlive this.
  OtlpExporter(const TracerOptions& options, RecordQueue* queue, OtlpMetrics* metrics);
  // Closes the queue and sends its spans, for a second at most; what is left counts as dropped.
  ~OtlpExporter();
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

 private:
  using ExportRequest = opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
  struct Connection;

  void Run();
  // The batch as a message; lives as long as `arena`.
  ExportRequest* Encode(const std::vector<RequestRecord>& batch,
                        google::protobuf::Arena* arena) const;
  // Tries until the collector answers, refuses for good, or has had long enough.
  void Export(const ExportRequest& request, int64_t spans);
  // One call. Its deadline is shorter when the exporter is stopping.
  absl::Status Call(const ExportRequest& request, int64_t* rejected_spans);
  // False if the exporter is stopping: then there is no time for another attempt.
  bool WaitToRetry(int64_t backoff_ns);
  bool GivenUp();
  void Failed(const absl::Status& status, int64_t spans);
  void Succeeded(int64_t spans, int64_t rejected_spans);

  const TracerOptions options_;
  const SpanEncoder encoder_;
  const std::string instance_id_;  // of this process
  RecordQueue* const queue_;
  OtlpMetrics* const metrics_;
  const std::unique_ptr<Connection> connection_;

  // The exporter's thread only.
  bool failing_ = false;  // the last call failed
  int64_t logged_ns_ = 0;
  int64_t late_spans_ = 0;  // not taken when the process ended; read after the thread's end

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  grpc::ClientContext* in_flight_ = nullptr;
  bool stopping_ = false;  // the destructor waits
  bool given_up_ = false;  // and has waited long enough
  bool ended_ = false;     // Run has returned

  std::thread thread_;  // last, because it uses the members above
};

}  // namespace quire

// Traced requests from many threads to a collector in this process: each span is accounted for,
// whatever ends the request and whatever the collector does.
#include "server/tracing/otlp_exporter.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "opentelemetry/trace_service.grpc.pb.h"
#include "server/metrics/metrics.h"
#include "server/metrics/otlp_metrics.h"
#include "server/tracing/otlp_endpoint.h"
#include "server/tracing/tracer.h"
#include "tests/server/log_capture.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

namespace otlp = opentelemetry::proto::collector::trace::v1;
using Outcome = OtlpMetrics::Outcome;

// A collector that keeps the spans, or that hangs until its caller gives up.
class Collector final : public otlp::TraceService::Service {
 public:
  explicit Collector(bool hangs) : hangs_(hangs) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Collector() override { server_->Shutdown(std::chrono::system_clock::now()); }

  OtlpEndpoint endpoint() const { return {.host = "127.0.0.1", .port = port_}; }
  bool called() const { return called_.load(); }
  std::vector<otlp::Span> spans() {
    const std::lock_guard lock(mutex_);
    return spans_;
  }

 private:
  grpc::Status Export(grpc::ServerContext* context, const otlp::ExportTraceServiceRequest* request,
                      otlp::ExportTraceServiceResponse*) override {
    called_.store(true);
    while (hangs_ && !context->IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::lock_guard lock(mutex_);
    for (const otlp::ResourceSpans& resource : request->resource_spans()) {
      for (const otlp::ScopeSpans& scope : resource.scope_spans()) {
        spans_.insert(spans_.end(), scope.spans().begin(), scope.spans().end());
      }
    }
    return grpc::Status::OK;
  }

  const bool hangs_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<bool> called_{false};
  std::mutex mutex_;
  std::vector<otlp::Span> spans_;
};

TracerOptions Options(const Collector& collector) {
  return {.endpoint = collector.endpoint(),
          .service_name = "tested",
          .service_version = "1",
          .model = "scripted"};
}

// Requests that are answered, refused, cancelled at some point, or too late for their deadline.
void AskInEveryWay(TestServer& server, int each) {
  std::vector<std::thread> clients;
  for (int thread = 0; thread < 4; ++thread) {
    clients.emplace_back([&server, thread, each] {
      for (int i = 0; i < each; ++i) {
        grpc::ClientContext context;
        v1::GenerateRequest request = AskFor(thread == 0 ? 5 : 500);
        if (thread == 1) request.set_model("another");
        if (thread == 2) {
          context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(i % 7));
        }
        if (thread == 3) {
          const auto stream = server.inference().Generate(&context, request);
          v1::GenerateResponse frame;
          for (int read = 0; read < i % 4; ++read) stream->Read(&frame);
          context.TryCancel();
          while (stream->Read(&frame)) {
          }
          EXPECT_FALSE(stream->Finish().ok());
        } else {
          Stream(server.inference(), request, &context);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

// Generate calls that the server has ended.
size_t Handled(const std::string& metrics) {
  size_t count = 0;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("quire_grpc_server_handled_total{")) continue;
    if (line.find("method=\"Generate\"") == std::string::npos) continue;
    count += std::stoul(line.substr(line.rfind(' ')));
  }
  return count;
}

TEST(OtlpExporterTest, EveryTraceArrivesWholeHoweverItsRequestEnds) {
  constexpr int kEach = 40;
  ServerMetrics metrics("scripted");
  Collector collector(false);
  Tracer tracer(Options(collector), &metrics.otlp());
  const auto roots = [&collector] {
    size_t count = 0;
    for (const otlp::Span& span : collector.spans()) count += span.parent_span_id().empty();
    return count;
  };
  {
    TestServer server({.tracer = &tracer});
    AskInEveryWay(server, kEach);
    server.ExpectNothingLeft();
    // A request that was cancelled at once may not have reached the server.
    const auto all = [&] { return roots() >= 2 * kEach && roots() == Handled(server.Metrics()); };
    EXPECT_TRUE(TestServer::Eventually(all)) << roots() << " of " << Handled(server.Metrics());
  }
  std::map<std::string, std::set<std::string>> ids;  // by trace
  std::map<std::string, int> names;
  for (const otlp::Span& span : collector.spans()) {
    EXPECT_TRUE(ids[span.trace_id()].insert(span.span_id()).second);
    EXPECT_LE(span.start_time_unix_nano(), span.end_time_unix_nano()) << span.name();
    ++names[span.name()];
  }
  for (const otlp::Span& span : collector.spans()) {
    const std::string& parent = span.parent_span_id();
    EXPECT_TRUE(parent.empty() || ids[span.trace_id()].contains(parent)) << span.name();
  }
  EXPECT_EQ(names["quire.v1.Inference/Generate"], static_cast<int>(ids.size()));
  EXPECT_EQ(names["arrival"], static_cast<int>(ids.size())) << "one of each trace";
  EXPECT_GE(names["decode"], kEach);
  EXPECT_EQ(metrics.otlp().Total(Outcome::kDropped), 0);
  EXPECT_EQ(metrics.otlp().Total(Outcome::kFailed), 0);
}

TEST(OtlpExporterTest, AnEndWhileTheCollectorHangsCountsEverySpan) {
  const LogCapture log;
  ServerMetrics metrics("scripted");
  Collector collector(true);
  auto tracer = std::make_unique<Tracer>(Options(collector), &metrics.otlp());
  {
    TestServer server({.tracer = tracer.get()});
    for (int i = 0; i < 400; ++i) ASSERT_TRUE(Stream(server.inference(), AskFor(2)).status.ok());
    ASSERT_TRUE(TestServer::Eventually([&] { return collector.called(); }));
  }
  tracer.reset();
  StopLog();  // writes all lines
  OtlpMetrics& otlp = metrics.otlp();
  EXPECT_EQ(otlp.Total(Outcome::kSent), 0);
  EXPECT_EQ(otlp.Total(Outcome::kFailed), 0);
  EXPECT_EQ(otlp.Total(Outcome::kDropped), 400 * 5);
  EXPECT_EQ(log.Lines("the server ended before the collector took").size(), 1u);
}

TEST(OtlpExporterTest, AnEndSendsWhatWaitsForTheNextExport) {
  ServerMetrics metrics("scripted");
  Collector collector(false);
  auto tracer = std::make_unique<Tracer>(Options(collector), &metrics.otlp());
  {
    TestServer server({.tracer = tracer.get()});
    ASSERT_TRUE(Stream(server.inference(), AskFor(2)).status.ok());
  }
  tracer.reset();
  EXPECT_EQ(collector.spans().size(), 5u);
  EXPECT_EQ(metrics.otlp().Total(Outcome::kSent), 5);
}

}  // namespace
}  // namespace quire

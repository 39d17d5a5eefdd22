// Builds and ends gRPC's server.
#include "server/front/listener.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/call/connection_table.h"
#include "server/call/log_rate_limiter.h"
#include "server/tls/handshakes.h"
#include "server/tls/tls_credentials.h"

namespace quire {
namespace {

// Time that the library gets to end calls that were cancelled.
constexpr int64_t kCancelNs = 100'000'000;

// True if the line tells of a failed TLS handshake. Those that clients abandon are counted only:
// probes of a port do so all day.
bool CountHandshakeFailure(const gpr_log_func_args& args) {
  static LogRateLimiter limiter;
  const std::string_view file = args.file;
  if (file.ends_with("ssl_transport_security.cc")) return true;  // told again with more detail
  const auto failure = Handshakes::FailureOf(file, args.message);
  if (!failure) return false;
  Handshakes::OfProcess().Failed(*failure);
  if (*failure == Handshakes::Failure::kClosed) return true;
  const int64_t count = limiter.Count(SteadyNowNs());
  if (count == 0) return true;
  Log(Severity::kWarning, "TLS handshake failed",
      {{"reason", Handshakes::Name(*failure)}, {"count", count}});
  return true;
}

// Logs only file and line: gRPC's messages contain raw header values. The rate is limited because a
// client can cause an error with each of its calls.
void LogGrpcError(gpr_log_func_args* args) {
  static LogRateLimiter limiter;
  if (CountHandshakeFailure(*args) || args->severity != GPR_LOG_SEVERITY_ERROR) return;
  const int64_t count = limiter.Count(SteadyNowNs());
  if (count == 0) return;
  const std::string path = args->file;
  Log(Severity::kWarning, "gRPC library error",
      {{"file", path.substr(path.rfind('/') + 1)}, {"line", args->line}, {"count", count}});
}

// The fence around gRPC 1.51; docs/grpc.md gives the reason for each line.
void SetFence(const FrontOptions& options, grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota("quire");
  quota.Resize(static_cast<size_t>(options.resource_quota_bytes));
  quota.SetMaxThreads(64);
  builder->SetResourceQuota(quota);
  builder->SetMaxReceiveMessageSize(static_cast<int>(options.max_request_bytes));
  builder->SetMaxSendMessageSize(static_cast<int>(options.max_reply_bytes));
  // The library inflates a message before it checks the size: a megabyte on the wire can become a
  // gigabyte in memory.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  const std::pair<const char*, int> arguments[] = {
      {GRPC_ARG_MAX_METADATA_SIZE, 64 << 10},
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, Listener::kMaxConcurrentStreams},
      {GRPC_ARG_KEEPALIVE_TIME_MS, 20'000},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000},
      {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2},
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5'000},
      {GRPC_ARG_MAX_CONNECTION_IDLE_MS, 15 * 60 * 1000},
      {GRPC_ARG_ALLOW_REUSEPORT, 0},
  };
  for (const auto& [name, value] : arguments) builder->AddChannelArgument(name, value);
}

// Settings of gRPC and of its libraries that hold for the whole process.
void SetUpProcess(bool tls) {
  // Failures of handshakes are told at the lowest level; without TLS there are none.
  gpr_set_log_verbosity(tls ? GPR_LOG_SEVERITY_DEBUG : GPR_LOG_SEVERITY_ERROR);
  // Debian builds Abseil with the deadlock detector on. It takes a global lock at every mutex
  // of gRPC, a tenth of the server's time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // The reply to a message that does not parse names the field; the library would also print it.
  google::protobuf::SetLogHandler(nullptr);
  gpr_set_log_function(LogGrpcError);
  grpc::EnableDefaultHealthCheckService(false);
}

}  // namespace

// Refuses calls of unknown methods, and counts them like other calls.
class Listener::UnknownMethods final : public grpc::CallbackGenericService {
 public:
  // `connections` outlive the service.
  explicit UnknownMethods(ConnectionTable* connections) : connections_(connections) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Refusal(connections_, context->peer());
  }

 private:
  class Refusal final : public grpc::ServerGenericBidiReactor {
   public:
    Refusal(ConnectionTable* connections, const std::string& peer) : call_(connections, peer) {
      Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                          "this server has no such method; server reflection lists what it has"));
    }
    void OnDone() override { delete this; }

   private:
    const OpenCall call_;
  };

  ConnectionTable* const connections_;
};

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const Acceptor::Options& address,
                                                         const FrontOptions* limits,
                                                         const Door* door, ServerMetrics* metrics) {
  ASSIGN_OR_RETURN(std::unique_ptr<Acceptor> acceptor, Acceptor::Listen(address));
  return std::unique_ptr<Listener>(new Listener(std::move(acceptor), limits, door, metrics));
}

Listener::Listener(std::unique_ptr<Acceptor> acceptor, const FrontOptions* limits, const Door* door,
                   ServerMetrics* metrics)
    : acceptor_(std::move(acceptor)),
      limits_(*limits),
      metrics_(*metrics),
      gate_(door, &metrics->auth()),
      unknown_(std::make_unique<UnknownMethods>(&acceptor_->connections())) {}

Listener::~Listener() = default;

absl::Status Listener::Serve(const std::vector<RawService*>& services,
                             CertificateStore* certificates) {
  SetUpProcess(limits_.tls.on());  // not of this listener alone: the log is of the process
  grpc::ServerBuilder builder;
  SetFence(limits_, &builder);
  for (RawService* service : services) builder.RegisterService(service);
  builder.RegisterCallbackGenericService(unknown_.get());
  connections_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      certificates == nullptr ? PlaintextCredentials(&gate_)
                              : TlsCredentials(certificates, &gate_));
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("the gRPC library did not start its server");
  const auto deliver = [this, tls = certificates != nullptr](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    if (tls) Handshakes::OfProcess().Begun();
    connections_->HandleNewConnection(&connection);
  };
  acceptor_->Start(deliver, [this] { metrics_.ConnectionRejected(); });
  return absl::OkStatus();
}

void Listener::StopAccepting() {
  acceptor_->Stop();
  gate_.Open();
}

void Listener::Shutdown(int64_t wait_ns) {
  if (server_ == nullptr) return;
  cutter_.Arm(static_cast<double>(wait_ns + kCancelNs) * 1e-9);
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::nanoseconds(wait_ns));
  cutter_.Disarm();
}

}  // namespace quire

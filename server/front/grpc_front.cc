// Life cycle of the gRPC front: build, listen, serve, drain, shut down.
#include "server/front/grpc_front.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/call/call_resources.h"
#include "server/call/drain_state.h"
#include "server/call/log_rate_limiter.h"
#include "server/call/serial_thread.h"
#include "server/call/status_codec.h"
#include "server/call/text_pool.h"
#include "server/front/acceptor.h"
#include "server/front/control_service.h"
#include "server/front/health_service.h"
#include "server/front/inference_service.h"
#include "server/front/reflection.h"
#include "server/generate/generate_resources.h"
#include "server/generate/output_shards.h"
#include "server/generate/stall_watch.h"
#include "server/generate/stream_table.h"
#include "server/session/session_resources.h"
#include "server/session/session_watches.h"
#include "server/session/sessions_service.h"

namespace quire {
namespace {

constexpr char kInference[] = "quire.v1.Inference";
constexpr char kControl[] = "quire.v1.Control";
constexpr char kSessions[] = "quire.v1.Sessions";

// Per connection. Several times the limit of proxies: requests wait in the engine's queue, which
// orders them, rather than in a client.
constexpr int kMaxConcurrentStreams = 1024;

// Time that the library gets to end its calls: once by themselves, once cancelled.
constexpr int64_t kShutdownNs = 100'000'000;

// Makes the ids and seeds of two processes differ.
uint64_t RandomKey() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

std::string Hex(uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(value >> shift) & 15];
  return text;
}

// Logs only file and line: gRPC's messages contain raw header values. The rate is limited because a
// client can cause an error with each of its calls.
void LogGrpcError(gpr_log_func_args* args) {
  static LogRateLimiter limiter;
  if (args->severity != GPR_LOG_SEVERITY_ERROR) return;
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
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams},
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

// Refuses calls of unknown methods, and counts them like other calls.
class UnknownMethods final : public grpc::CallbackGenericService {
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

class Front final : public GrpcFront {
 public:
  Front(const FrontOptions& options, const ServingModel* model, ServerMetrics* metrics,
        Tracer* tracer);
  ~Front() override { Shutdown(0); }

  void OnTurnStarts(std::span<const TurnStart> starts) override { shards_.OnTurnStarts(starts); }
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    shards_.OnStep(tokens, finishes);
  }
  absl::Status Start(Engine* engine, HostArenas arenas, TurnArchive* archive) override;
  int port() const override { return port_; }
  void SetServing(bool serving) override;
  void BeginExit() override;
  void StartDrain() override;
  bool ExitRequested() const override { return exit_requested_.load(); }
  bool Draining() const override { return drain_.draining(); }
  int open_streams() const override { return table_.open(); }
  void Shutdown(double grace_seconds) override;

 private:
  void Drain(bool exit_when_idle);
  absl::StatusOr<bool> Undrain();
  absl::Status BuildServer();

  static int TextThreads(const FrontOptions& options) { return std::max(1, options.text_threads); }

  const FrontOptions options_;
  const ServingModel& model_;
  ServerMetrics& metrics_;
  Tracer* const tracer_;
  DrainState drain_;
  // The objects that calls use, made by Start. Before the members below, some of which have threads
  // that run streams.
  std::optional<CallResources> calls_;
  std::optional<GenerateResources> generate_;
  std::optional<SessionResources> session_;
  StreamTable table_;
  StallWatch stalls_;
  std::unique_ptr<Acceptor> acceptor_;
  OutputShards shards_;
  std::unique_ptr<TextPool> text_pool_;
  SessionWatches watches_;
  std::unique_ptr<SerialThread> session_thread_;  // starts with the listener
  const int64_t started_ns_ = SteadyNowNs();
  int port_ = 0;
  std::atomic<bool> exit_requested_{false};
  // Orders drain, undrain, exit and health; drain_ is written under it.
  std::mutex drain_mutex_;
  bool serving_ = false;  // under drain_mutex_; the last SetServing
  bool ending_ = false;   // under drain_mutex_
  bool shut_down_ = false;
  std::unique_ptr<RawService> inference_;
  std::unique_ptr<RawService> control_;
  std::unique_ptr<RawService> sessions_;
  std::unique_ptr<RawService> reflection_;
  HealthBoard health_board_{{"", kInference, kControl, kSessions}};
  std::unique_ptr<RawService> health_;
  std::optional<UnknownMethods> unknown_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> server_;
};

Front::Front(const FrontOptions& options, const ServingModel* model, ServerMetrics* metrics,
             Tracer* tracer)
    : options_(options),
      model_(*model),
      metrics_(*metrics),
      tracer_(tracer),
      table_(options.max_open_streams),
      stalls_(static_cast<int64_t>(options.slow_reader_timeout_seconds * 1e9)),
      shards_(TextThreads(options)),
      text_pool_(std::make_unique<TextPool>(TextThreads(options),
                                            static_cast<size_t>(options.max_open_streams),
                                            static_cast<size_t>(options.resource_quota_bytes))) {}

absl::Status Front::Start(Engine* engine, HostArenas arenas, TurnArchive* archive) {
  session_thread_ = std::make_unique<SerialThread>();
  // A connection has at most kMaxConcurrentStreams live streams, so of twice as many open calls at
  // least half have been reset.
  ASSIGN_OR_RETURN(acceptor_, Acceptor::Listen({.host = options_.host,
                                                .insecure_plaintext = options_.insecure_plaintext,
                                                .port = options_.port,
                                                .uds = options_.uds,
                                                .max_connections = options_.max_connections,
                                                .max_calls = 2 * kMaxConcurrentStreams,
                                                .max_calls_uds = options_.max_open_streams +
                                                                 2 * kMaxConcurrentStreams}));
  ConnectionTable& connections = acceptor_->connections();
  shards_.SetConnections(&connections);
  calls_.emplace(CallResources{.options = options_,
                               .metrics = metrics_,
                               .connections = connections,
                               .text_pool = *text_pool_,
                               .tracer = tracer_});
  generate_.emplace(GenerateResources{.calls = *calls_,
                                      .model = model_,
                                      .engine = *engine,
                                      .drain = drain_,
                                      .streams = table_,
                                      .stalls = stalls_,
                                      .archive = archive,
                                      .key = RandomKey()});
  session_.emplace(SessionResources{.calls = *calls_,
                                    .model = model_,
                                    .engine = *engine,
                                    .drain = drain_,
                                    .streams = table_,
                                    .thread = *session_thread_,
                                    .watches = watches_,
                                    .arenas = std::move(arenas)});
  RETURN_IF_ERROR(BuildServer());
  if (archive != nullptr) {
    archive->Tell(&watches_);
  } else {
    engine->SetSessionObserver(&watches_);
  }
  port_ = acceptor_->port();
  SetServing(true);
  const auto deliver = [this](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    connections_->HandleNewConnection(&connection);
  };
  acceptor_->Start(deliver, [this] { metrics_.ConnectionRejected(); });
  return absl::OkStatus();
}

absl::Status Front::BuildServer() {
  // Debian builds Abseil with the deadlock detector on. It takes a global lock at every mutex
  // of gRPC, a tenth of the server's time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // The reply to a message that does not parse names the field; the library would also print it.
  google::protobuf::SetLogHandler(nullptr);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function(LogGrpcError);
  grpc::EnableDefaultHealthCheckService(false);
  inference_ = MakeInferenceService(&*generate_);
  control_ = MakeControlService({.calls = *calls_,
                                 .model = model_,
                                 .engine = generate_->engine,
                                 .drain = drain_,
                                 .streams = table_,
                                 .sessions = *session_},
                                {[this](bool exit_when_idle) { Drain(exit_when_idle); },
                                 [this] { return Undrain(); }, started_ns_, Hex(RandomKey())});
  sessions_ = MakeSessionsService(&*session_);
  health_ = MakeHealthService(&*calls_, &health_board_);
  grpc::ServerBuilder builder;
  SetFence(options_, &builder);
  builder.RegisterService(inference_.get());
  builder.RegisterService(control_.get());
  builder.RegisterService(sessions_.get());
  builder.RegisterService(health_.get());
  unknown_.emplace(&calls_->connections);
  builder.RegisterCallbackGenericService(&*unknown_);
  if (options_.reflection) {
    reflection_ = MakeReflectionService(&calls_->connections, options_.max_reply_bytes,
                                        {kInference, kControl, kSessions, "grpc.health.v1.Health",
                                         "grpc.reflection.v1.ServerReflection"});
    builder.RegisterService(reflection_.get());
  }
  connections_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("the gRPC library did not start its server");
  return absl::OkStatus();
}

void Front::SetServing(bool serving) {
  const std::lock_guard lock(drain_mutex_);
  serving_ = serving;
  health_board_.Set(serving && !drain_.draining());
}

void Front::BeginExit() {
  const std::lock_guard lock(drain_mutex_);
  ending_ = true;
}

void Front::StartDrain() {
  const std::lock_guard lock(drain_mutex_);
  health_board_.Set(false);  // before any refusal, so that balancers choose another server first
  drain_.Set(true);
}

void Front::Drain(bool exit_when_idle) {
  StartDrain();
  if (!exit_when_idle) return;
  BeginExit();
  exit_requested_.store(true);
}

absl::StatusOr<bool> Front::Undrain() {
  const std::lock_guard lock(drain_mutex_);
  if (ending_) {
    return Refusal(absl::StatusCode::kFailedPrecondition, "EXITING",
                   "the server is ending and accepts no work again; use another server");
  }
  const bool was_draining = drain_.Set(false);
  health_board_.Set(serving_);
  return was_draining;
}

void Front::Shutdown(double grace_seconds) {
  if (std::exchange(shut_down_, true) || server_ == nullptr) return;
  BeginExit();
  StartDrain();
  acceptor_->Stop();
  const int64_t end_ns = SteadyNowNs() + static_cast<int64_t>(grace_seconds * 1e9);
  generate_->engine.CancelAll(FinishReason::kDraining);
  table_.WaitEmpty(grace_seconds);
  // Health watchers are left, and streams whose reader or engine hangs. The deadline cancels them,
  // and every reactor finishes when cancelled.
  const int64_t left_ns = std::max<int64_t>(end_ns - SteadyNowNs(), 0);
  const int64_t wait_ns = std::min<int64_t>(left_ns, kShutdownNs);
  // A call whose write is blocked by a full socket cannot be cancelled: only cutting the connection
  // ends it.
  absl::Notification down;
  std::thread cutter([&] {
    if (down.WaitForNotificationWithTimeout(absl::Nanoseconds(wait_ns + kShutdownNs))) return;
    calls_->connections.CutAll("the server is ending and its calls do not end");
  });
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::nanoseconds(wait_ns));
  down.Notify();
  cutter.join();
  text_pool_.reset();
  session_thread_->Stop();
  server_.reset();
}

}  // namespace

std::unique_ptr<GrpcFront> GrpcFront::Create(const FrontOptions& options, const ServingModel* model,
                                             ServerMetrics* metrics, Tracer* tracer) {
  return std::make_unique<Front>(options, model, metrics, tracer);
}

}  // namespace quire

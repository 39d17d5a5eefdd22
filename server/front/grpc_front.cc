// Life cycle of the gRPC front: build, listen, serve, drain, shut down.
#include "server/front/grpc_front.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/call/call_resources.h"
#include "server/call/drain_state.h"
#include "server/call/serial_thread.h"
#include "server/call/status_codec.h"
#include "server/call/text_pool.h"
#include "server/detach/kept_answers.h"
#include "server/front/control_service.h"
#include "server/front/field_services.h"
#include "server/front/health_service.h"
#include "server/front/inference_service.h"
#include "server/front/listener.h"
#include "server/front/reflection.h"
#include "server/generate/generate_resources.h"
#include "server/generate/output_shards.h"
#include "server/generate/stall_watch.h"
#include "server/generate/stream_table.h"
#include "server/identity/open_door.h"
#include "server/jobs/job_resources.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/jobs_service.h"
#include "server/metrics/metrics.h"
#include "server/orca/orca_service.h"
#include "server/session/session_resources.h"
#include "server/session/session_watches.h"
#include "server/session/sessions_service.h"
#include "server/structured/guide_maker.h"
#include "server/tls/certificate_store.h"
#include "server/tls/certificate_watch.h"
#include "server/tls/handshakes.h"
#include "server/tls/tls_credentials.h"

namespace quire {
namespace {

constexpr char kInference[] = "quire.v1.Inference";
constexpr char kControl[] = "quire.v1.Control";
constexpr char kSessions[] = "quire.v1.Sessions";
constexpr char kJobs[] = "quire.v1.Jobs";

// Exports and imports of sessions at a time.
constexpr int kMaxTransfers = 64;

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

// The services of this server behind `names`.
std::vector<std::string> ServiceNames(std::vector<std::string> names) {
  names.insert(names.end(), {kInference, kControl, kSessions, kJobs});
  const std::vector<std::string> field = FieldServiceNames();
  names.insert(names.end(), field.begin(), field.end());
  return names;
}

class Front final : public GrpcFront {
 public:
  Front(const FrontOptions& options, const ServingModel* model, ServerMetrics* metrics,
        Tracer* tracer);
  ~Front() override { Shutdown(0); }

  void OnTurnStarts(std::span<const TurnStart> starts) override { shards_.OnTurnStarts(starts); }
  void OnReadings(std::span<const ReadingEvent> readings,
                  std::span<const uint32_t> words) override {
    shards_.OnReadings(readings, words);
  }
  void OnStep(std::span<const TokenEvent> tokens, std::span<const FinishEvent> finishes) override {
    shards_.OnStep(tokens, finishes);
  }
  absl::Status Start(Engine* engine, HostArenas arenas, TurnArchive* archive,
                     JobRunner* jobs) override;
  int port() const override { return port_; }
  void SetServing(bool serving) override;
  void BeginExit() override;
  void StartDrain() override;
  bool ExitRequested() const override { return exit_requested_.load(); }
  bool Draining() const override { return drain_.draining(); }
  int open_streams() const override { return table_.open(); }
  int detached_streams() const override { return kept_.detached(); }
  UnendedCalls unended() const override {
    return {.streams = table_.open(),
            .calls = listener_->connections().open_calls(),
            .text_jobs = text_pool_->unfinished()};
  }
  void Shutdown(double grace_seconds) override;

 private:
  void Drain(bool exit_when_idle);
  absl::StatusOr<bool> Undrain();
  absl::Status BindAdmin();
  std::unique_ptr<RawService> MakeControl(const CallResources& calls);
  void MakeServices();
  std::vector<RawService*> Services();

  static int TextThreads(const FrontOptions& options) { return std::max(1, options.text_threads); }

  const FrontOptions options_;
  const OpenDoor open_door_{/*admin=*/true};
  const LocalAdminDoor admin_door_;
  const Door& door_;
  const ServingModel& model_;
  ServerMetrics& metrics_;
  Tracer* const tracer_;
  DrainState drain_;
  // The objects that calls use, made by Start. Before the members below, some of which have threads
  // that run streams.
  std::optional<CallResources> calls_;
  std::optional<CallResources> admin_calls_;
  std::optional<GenerateResources> generate_;
  std::optional<SessionResources> session_;
  std::optional<JobResources> jobs_;
  StreamTable table_;
  TenantQuota transfers_{kMaxTransfers, kMaxTransfers / 2};
  KeptAnswers kept_;
  StallWatch stalls_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Listener> admin_;  // null: no --admin-uds
  OutputShards shards_;
  std::unique_ptr<TextPool> text_pool_;
  GuideMaker guides_;
  SessionWatches watches_;
  std::unique_ptr<SerialThread> session_thread_;  // starts with the listener
  const int64_t started_ns_ = SteadyNowNs();
  const std::string instance_id_ = Hex(RandomKey());
  int port_ = 0;
  std::atomic<bool> exit_requested_{false};
  // Orders drain, undrain, exit and health; drain_ is written under it.
  std::mutex drain_mutex_;
  std::atomic<bool> serving_{false};  // written under drain_mutex_; the last SetServing
  bool ending_ = false;               // under drain_mutex_
  bool shut_down_ = false;
  std::unique_ptr<RawService> inference_;
  std::unique_ptr<RawService> control_;
  std::unique_ptr<RawService> sessions_;
  std::unique_ptr<RawService> jobs_service_;
  std::unique_ptr<RawService> reflection_;
  std::vector<FieldService> field_services_;
  HealthBoard health_board_{ServiceNames({""})};
  std::unique_ptr<RawService> health_;
  std::unique_ptr<RawService> orca_;
  std::unique_ptr<RawService> admin_control_;
  std::unique_ptr<RawService> admin_health_;
  std::unique_ptr<CertificateStore> certificates_;  // null: plaintext
  std::optional<CertificateWatch> watch_;
};

Front::Front(const FrontOptions& options, const ServingModel* model, ServerMetrics* metrics,
             Tracer* tracer)
    : options_(options),
      door_(options.door == nullptr ? open_door_ : *options.door),
      model_(*model),
      metrics_(*metrics),
      tracer_(tracer),
      table_(options.max_open_streams),
      kept_(options.max_detached_bytes, metrics->registry()),
      stalls_(static_cast<int64_t>(options.slow_reader_timeout_seconds * 1e9)),
      shards_(TextThreads(options)),
      text_pool_(std::make_unique<TextPool>(TextThreads(options),
                                            static_cast<size_t>(options.max_open_streams),
                                            static_cast<size_t>(options.resource_quota_bytes))),
      guides_(model, &metrics->guides(), [](const GrammarSource& source, auto vocabulary) {
        return CompileGuide(source, std::move(vocabulary));
      }) {}

absl::Status Front::Start(Engine* engine, HostArenas arenas, TurnArchive* archive,
                          JobRunner* jobs) {
  session_thread_ = std::make_unique<SerialThread>();
  if (options_.tls.on()) {
    ASSIGN_OR_RETURN(certificates_, CertificateStore::Open(options_.tls, time(nullptr)));
  }
  // A connection has at most this many live streams, so of twice as many open calls at least half
  // have been reset.
  const int max_calls = 2 * Listener::kMaxConcurrentStreams;
  ASSIGN_OR_RETURN(listener_,
                   Listener::Bind({.host = options_.host,
                                   .any_address = options_.insecure_plaintext || options_.tls.on(),
                                   .port = options_.port,
                                   .uds = options_.uds,
                                   .max_connections = options_.max_connections,
                                   .max_calls = max_calls,
                                   .max_calls_uds = options_.max_open_streams + max_calls},
                                  &options_, &door_, &metrics_));
  ConnectionTable& connections = listener_->connections();
  shards_.SetConnections(&connections);
  calls_.emplace(CallResources{.options = options_,
                               .door = door_,
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
                                      .guides = guides_,
                                      .archive = archive,
                                      .key = RandomKey()});
  session_.emplace(SessionResources{.calls = *calls_,
                                    .model = model_,
                                    .engine = *engine,
                                    .drain = drain_,
                                    .streams = table_,
                                    .transfers = transfers_,
                                    .thread = *session_thread_,
                                    .watches = watches_,
                                    .arenas = std::move(arenas)});
  jobs_.emplace(JobResources{.calls = *calls_, .drain = drain_, .runner = jobs});
  RETURN_IF_ERROR(BindAdmin());
  MakeServices();
  // The log level of gRPC is the one of the last listener that begins.
  if (admin_ != nullptr) {
    RETURN_IF_ERROR(admin_->Serve({admin_control_.get(), admin_health_.get()}, nullptr));
  }
  RETURN_IF_ERROR(listener_->Serve(Services(), certificates_.get()));
  if (certificates_) watch_.emplace(certificates_.get(), &metrics_.tls());
  if (archive != nullptr) {
    archive->Tell(&watches_);
  } else {
    engine->SetSessionObserver(&watches_);
  }
  if (jobs != nullptr) jobs->Start(&*generate_);
  port_ = listener_->port();
  SetServing(true);
  return absl::OkStatus();
}

// The mode of the socket, 0700, says who may administer.
absl::Status Front::BindAdmin() {
  if (options_.admin_uds.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(admin_, Listener::Bind({.uds = options_.admin_uds, .max_connections = 64},
                                          &options_, &admin_door_, &metrics_));
  admin_calls_.emplace(CallResources{.options = options_,
                                     .door = admin_door_,
                                     .metrics = metrics_,
                                     .connections = admin_->connections(),
                                     .text_pool = *text_pool_});
  return absl::OkStatus();
}

std::unique_ptr<RawService> Front::MakeControl(const CallResources& calls) {
  return MakeControlService({.calls = calls,
                             .model = model_,
                             .engine = generate_->engine,
                             .drain = drain_,
                             .streams = table_,
                             .sessions = *session_},
                            {[this](bool exit_when_idle) { Drain(exit_when_idle); },
                             [this] { return Undrain(); }, started_ns_, instance_id_});
}

void Front::MakeServices() {
  inference_ = MakeInferenceService(&*generate_, &kept_);
  control_ = MakeControl(*calls_);
  sessions_ = MakeSessionsService(&*session_);
  jobs_service_ = MakeJobsService(&*jobs_);
  field_services_ = MakeFieldServices({*generate_, *session_, serving_, started_ns_, instance_id_});
  health_ = MakeHealthService(&*calls_, &health_board_);
  orca_ = MakeOrcaService(&*calls_, &generate_->engine, model_.setup.config.max_num_seqs);
  if (admin_calls_.has_value()) {
    admin_control_ = MakeControl(*admin_calls_);
    admin_health_ = MakeHealthService(&*admin_calls_, &health_board_);
  }
  if (options_.reflection) {
    reflection_ = MakeReflectionService(
        &*calls_, ServiceNames({"grpc.health.v1.Health", "xds.service.orca.v3.OpenRcaService",
                                "grpc.reflection.v1.ServerReflection"}));
  }
}

std::vector<RawService*> Front::Services() {
  std::vector<RawService*> services = {inference_.get(),    control_.get(), sessions_.get(),
                                       jobs_service_.get(), health_.get(),  orca_.get()};
  for (const FieldService& field : field_services_) services.push_back(field.service.get());
  if (reflection_ != nullptr) services.push_back(reflection_.get());
  return services;
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
  if (std::exchange(shut_down_, true) || listener_ == nullptr) return;
  BeginExit();
  StartDrain();
  listener_->StopAccepting();
  if (admin_ != nullptr) admin_->StopAccepting();
  const int64_t end_ns = SteadyNowNs() + static_cast<int64_t>(grace_seconds * 1e9);
  generate_->engine.CancelAll(FinishReason::kDraining);
  table_.WaitEmpty(grace_seconds);
  // Health watchers are left, and streams whose reader or engine hangs. The deadline cancels them,
  // and every reactor finishes when cancelled.
  const int64_t left_ns = std::max<int64_t>(end_ns - SteadyNowNs(), 0);
  const int64_t wait_ns = std::min<int64_t>(left_ns, kShutdownNs);
  listener_->Shutdown(wait_ns);
  if (admin_ != nullptr) admin_->Shutdown(wait_ns);
  kept_.DropAll();
  if (jobs_->runner != nullptr) jobs_->runner->Stop();
  text_pool_->Stop();
  guides_.Stop();
  session_thread_->Stop();
  listener_->Close();
  if (admin_ != nullptr) admin_->Close();
}

}  // namespace

std::unique_ptr<GrpcFront> GrpcFront::Create(const FrontOptions& options, const ServingModel* model,
                                             ServerMetrics* metrics, Tracer* tracer) {
  return std::make_unique<Front>(options, model, metrics, tracer);
}

}  // namespace quire

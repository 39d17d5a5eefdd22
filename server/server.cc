// Start-up, watch and shutdown: one function each, which lists the steps in order.
#include "server/server.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/engine_workers.h"
#include "kernels/check.h"
#include "server/admin/admin_http.h"
#include "server/admin/graph_log.h"
#include "server/admin/probe_pages.h"
#include "server/admin/status_json.h"
#include "server/admin/status_page.h"
#include "server/call/serving_model.h"
#include "server/front/grpc_front.h"
#include "server/front/listen_address.h"
#include "server/identity/door_keeper.h"
#include "server/jobs/job_runner.h"
#include "server/metrics/gpu_watch.h"
#include "server/metrics/live_figures.h"
#include "server/metrics/metrics.h"
#include "server/metrics/tenant_metrics.h"
#include "server/model_identity.h"
#include "server/session/archive/session_archive.h"
#include "server/session/session_transfer.h"
#include "server/start/answer_formats.h"
#include "server/start/plan_serving.h"
#include "server/start/text_parts.h"
#include "server/tls/certificate_check.h"
#include "server/tracing/tracer.h"
#include "server/watch/spare_threads.h"
#include "server/watch/watchdog.h"
#include "version/build_facts.h"

namespace quire {
namespace {

constexpr double kWatchSeconds = 1;        // between two checks of the engine
constexpr double kDrainLookSeconds = .05;  // between two checks while the last streams finish
constexpr int kCallsBeyondQueue = 1024;    // open calls that are being parsed, refused or ended
constexpr double kForcedExitSeconds = 5;   // beyond the time allowed for draining

double SecondsSince(int64_t start_ns) {
  return static_cast<double>(SteadyNowNs() - start_ns) * 1e-9;
}

// The front's settings, with room for every call that the engine can hold.
FrontOptions FrontFor(const Settings& settings, const Door* door) {
  FrontOptions options = settings.server.front;
  options.door = door;
  options.max_open_streams =
      settings.engine.max_num_queued_reqs + settings.engine.max_num_seqs + kCallsBeyondQueue;
  return options;
}

}  // namespace

struct Server::State {
  State(const Settings& s, int64_t start, WorkerStarter starter)
      : settings(ResolveServer(s)),
        started_ns(start),
        start_workers(std::move(starter)),
        metrics(settings.server.served_model_names.front()) {
    const std::vector<std::string>& names = settings.server.served_model_names;
    model.name = names.front();
    model.other_names.assign(names.begin() + 1, names.end());
  }

  std::optional<StartError> Listen();
  std::optional<StartError> Load();
  absl::Status Plan();
  absl::StatusOr<std::unique_ptr<Transport>> StartWorkers();
  absl::Status OpenArchive();
  absl::Status StartTracer();
  absl::Status OpenKeys();
  std::optional<StartError> Serve();
  void EndPhase(const char* name);

  void Watch();
  void WatchThreads();
  void WaitForDrain();
  // Watches the server until `done()` is true or `seconds` have passed.
  template <typename Done>
  void WatchUntil(double seconds, Done done);
  void LogDrained();
  void LogHung();
  [[noreturn]] void ForceExit();
  ExitCode Drain();
  void TearDown();

  EngineStats Stats();
  AdminPage Page(std::string_view path);
  void ShowTenants();
  AdminPage StatusPageJson();
  std::string Address() const;
  bool Draining();
  const char* StateName();

  const Settings settings;
  const int64_t started_ns;
  const WorkerStarter start_workers;       // null: `workers`
  std::unique_ptr<EngineWorkers> workers;  // from Plan to StartWorkers
  HostArenas arenas;
  int64_t phase_ns = started_ns;
  ServerMetrics metrics;
  std::unique_ptr<GpuWatch> gpu_watch;  // null: no rank has a GPU
  ServingModel model;                   // complete, and constant, once ready
  std::atomic<bool> ready{false};
  std::atomic<bool> healthy{true};
  std::atomic<bool> draining{false};  // before the end of the process
  // The step of the shutdown, for the log of one that hangs.
  std::atomic<const char*> ending{"running requests"};
  std::atomic<bool> short_of_threads{false};
  bool faulted = false;  // Run's thread only
  bool drained = false;  // Run's thread only: the end of a client's drain was logged

  std::mutex drain_mutex;
  std::condition_variable drain_changed;
  bool drain_requested = false;

  std::unique_ptr<DoorKeeper> keeper;       // outlives the front
  std::unique_ptr<Tracer> tracer;           // null: no endpoint; outlives engine and front
  std::unique_ptr<SessionArchive> archive;  // null: no session directory; outlives engine and front
  std::unique_ptr<JobRunner> jobs;          // likewise

  // Guards the pointers below: the admin thread reads them while they are created and destroyed.
  std::mutex parts_mutex;
  std::unique_ptr<GrpcFront> front;  // outlives the engine, whose sink it is
  std::unique_ptr<Engine> engine;
  std::unique_ptr<AdminHttp> admin;  // ends first, because its pages read the members above

  Watchdog forced_exit{[this] { ForceExit(); }};  // last: its thread reads the members above
};

// Start-up.

void Server::State::EndPhase(const char* name) {
  const int64_t now_ns = SteadyNowNs();
  const double seconds = static_cast<double>(now_ns - std::exchange(phase_ns, now_ns)) * 1e-9;
  metrics.StartupPhase(name, seconds);
  Log(Severity::kDebug, "start-up phase ended", {{"phase", name}, {"seconds", seconds}});
}

// Binds the admin port, and checks that the gRPC address is free before the model is loaded.
std::optional<StartError> Server::State::Listen() {
  const ServerConfig& config = settings.server;
  const absl::Status tls = CheckTlsFiles(config.front.tls, time(nullptr));
  if (!tls.ok()) return StartError{ExitCode::kBadConfig, tls};
  absl::StatusOr<std::unique_ptr<AdminHttp>> port =
      AdminHttp::Start({.host = config.metrics_host, .port = config.metrics_port},
                       [this](std::string_view path) { return Page(path); });
  if (!port.ok()) return StartError{ExitCode::kCannotListen, port.status()};
  admin = *std::move(port);
  const absl::Status address = config.front.uds.empty()
                                   ? CheckTcpFree(config.front.host, config.front.port, "--port")
                                   : CheckUnixSocketFree(config.front.uds);
  if (!address.ok()) return StartError{ExitCode::kCannotListen, address};
  if (const std::string& path = config.front.admin_uds; !path.empty()) {
    const absl::Status free = CheckUnixSocketFree(path);
    if (!free.ok()) return StartError{ExitCode::kCannotListen, free};
  }
  if (const std::string exposure = config.Exposure(); !exposure.empty()) {
    Log(Severity::kWarning, exposure, {{"host", config.front.host}});
  }
  return std::nullopt;
}

absl::Status Server::State::Plan() {
  EngineConfig config = settings.engine;
  DeviceFacts device;
  if (!start_workers) {
    ASSIGN_OR_RETURN(workers, EngineWorkers::Find(config));
    config = workers->config();
    device = workers->device();
  }
  ASSIGN_OR_RETURN(model.setup, PlanEngine(config, device));
  metrics.MemoryPlanned(model.setup.memory);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Transport>> Server::State::StartWorkers() {
  if (start_workers) return start_workers(model.setup, &model.device_description);
  WorkerReport report;
  ASSIGN_OR_RETURN(const uint64_t loaded, LoadedIdentity(model.setup, model.identity));
  ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                   workers->Start(model.setup, &report, [setup = model.setup, loaded] {
                     return CheckSameFiles(setup, loaded);
                   }));
  arenas = workers->arenas();
  workers.reset();
  model.device_description = report.description;
  metrics.WorkersStarted(report);
  LogGraphs(report);
  if (!report.gpus.empty()) {
    gpu_watch = std::make_unique<GpuWatch>(report.gpus, &metrics.gpus());
  }
  return transport;
}

std::optional<StartError> Server::State::Load() {
  // In parallel with the search for the device.
  auto text = std::async(std::launch::async, LoadText, TextDirectory(settings),
                         settings.server.chat_template);
  const absl::Status planned = Plan();
  if (!planned.ok()) return PlanError(settings.engine, planned);
  EndPhase("plan");

  absl::StatusOr<TextParts> parts = text.get();
  if (!parts.ok()) return StartError{ExitCode::kModel, parts.status()};
  model.text_directory = TextDirectory(settings);
  model.tokenizer = std::move(parts->tokenizer);
  model.chat_templates = std::move(parts->chat_templates);
  FindAnswerFormats(settings.server, &model);
  absl::StatusOr<LogitProcessors> processors = LogitProcessors::Load(
      settings.server.logit_processors, model.tokenizer.get(), model.setup.model.vocab_size);
  if (!processors.ok()) return StartError{ExitCode::kBadConfig, processors.status()};
  model.logit_processors = *std::move(processors);
  const absl::StatusOr<uint64_t> identity = ModelIdentity(model.setup);
  if (!identity.ok()) return StartError{ExitCode::kModel, identity.status()};
  model.identity = *identity;
  EndPhase("tokenizer");
  // Before the weights: a directory that another server uses is refused at once.
  const absl::Status opened = OpenArchive();
  if (!opened.ok()) return StartError{ExitCode::kBadConfig, opened};

  if (const absl::Status status = OpenKeys(); !status.ok()) {
    return StartError{ExitCode::kBadConfig, status};
  }
  if (const absl::Status status = StartTracer(); !status.ok()) {
    return StartError{ExitCode::kBadConfig, status};
  }
  absl::StatusOr<std::unique_ptr<Transport>> transport = StartWorkers();
  if (!transport.ok()) {
    return StartError{DeviceOr(ExitCode::kModel, transport.status()), transport.status()};
  }
  {
    const std::lock_guard lock(parts_mutex);
    front = GrpcFront::Create(FrontFor(settings, &keeper->door()), &model, &metrics, tracer.get());
    engine = std::make_unique<Engine>(model.setup.scheduler, model.setup.limits,
                                      *std::move(transport), front.get(), model.setup.graph_sizes);
  }
  // The key file's reader has checked the limits.
  keeper->Watch([this](const TenantTable& tenants) { CHECK(engine->SetTenants(tenants).ok()); });
  EndPhase("weights");
  if (archive != nullptr) archive->Adopt(engine.get(), arenas);
  return std::nullopt;
}

absl::Status Server::State::OpenArchive() {
  const ServerConfig& config = settings.server;
  if (config.session_dir.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(archive, SessionArchive::Open({.folder = config.session_dir,
                                                  .max_bytes = config.session_dir_size,
                                                  .model = model.name,
                                                  .model_identity = model.identity,
                                                  .limits = FileLimits(model)},
                                                 &metrics.archive()));
  // In a folder of its own, below the archive's lock.
  const std::filesystem::path folder = std::filesystem::path(config.session_dir) / "jobs";
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) {
    return absl::InvalidArgumentError("--session-dir: cannot make " + folder.string() + ": " +
                                      error.message());
  }
  ASSIGN_OR_RETURN(jobs, JobRunner::Open({.max_bytes = config.job_size}, &metrics.jobs(),
                                         OpenDisk(folder.string())));
  return absl::OkStatus();
}

absl::Status Server::State::OpenKeys() {
  const ServerConfig& config = settings.server;
  // Without keys, this machine's users may administer, unless a socket is there for it; other
  // machines may not.
  ASSIGN_OR_RETURN(
      keeper, DoorKeeper::Open({.api_keys = config.api_keys,
                                .everybody_administers =
                                    !config.BeyondThisMachine() && config.front.admin_uds.empty(),
                                .served = settings.server.served_model_names},
                               &metrics.auth()));
  return absl::OkStatus();
}

// The collector need not be there yet.
absl::Status Server::State::StartTracer() {
  const ServerConfig& config = settings.server;
  if (config.otlp_endpoint.empty()) return absl::OkStatus();
  TracerOptions options{.sample_ratio = config.trace_sample_ratio,
                        .service_name = config.otlp_service_name,
                        .service_version = ThisBuild().version,
                        .model = model.name};
  ASSIGN_OR_RETURN(options.endpoint, ParseOtlpEndpoint(config.otlp_endpoint));
  tracer = std::make_unique<Tracer>(options, &metrics.otlp());
  return absl::OkStatus();
}

std::optional<StartError> Server::State::Serve() {
  const absl::Status status = front->Start(engine.get(), arenas, archive.get(), jobs.get());
  if (!status.ok()) return StartError{ExitCode::kCannotListen, status};
  if (const absl::Status spare = CheckSpareThreads(); !spare.ok()) {
    return StartError{ExitCode::kRefused, spare};
  }
  EndPhase("listen");
  ready = true;
  front->SetServing(true);
  const double seconds = SecondsSince(started_ns);
  metrics.StartupPhase("ready", seconds);
  Log(Severity::kInfo, "READY",
      {{"address", Address()},
       {"port", front->port()},
       {"metrics_port", admin->port()},
       {"model", model.name},
       {"device", model.device_description},
       {"kv_tokens", model.setup.memory.kv_tokens()},
       {"host_kv_tokens", model.setup.memory.host_kv_tokens()},
       {"seconds", seconds}});
  return std::nullopt;
}

// Watching.

EngineStats Server::State::Stats() {
  const std::lock_guard lock(parts_mutex);
  return engine == nullptr ? EngineStats() : engine->Stats();
}

void Server::State::Watch() {
  const EngineStats stats = Stats();
  const int64_t now_ns = SteadyNowNs();
  LiveFigures& live = metrics.live();
  live.history.Add(stats, live.first_token, live.inter_token, now_ns);
  // One interval earlier, so that health turns off within hung_after of the last step.
  const double limit = settings.server.hung_after_seconds - kWatchSeconds;
  const bool now_healthy = IsHealthy(stats, now_ns, limit);
  if (now_healthy != healthy.exchange(now_healthy)) {
    front->SetServing(now_healthy && !draining);
    const char* event = now_healthy            ? "healthy: the engine makes progress again"
                        : !stats.fault.empty() ? "not healthy: the engine has failed"
                        : stats.recovering     ? "not healthy: the workers died"
                                               : "not healthy: the engine makes no progress";
    Log(now_healthy ? Severity::kInfo : Severity::kError, event,
        {{"running", stats.load.running}, {"waiting", stats.load.waiting}, {"steps", stats.steps}});
  }
  faulted = !stats.fault.empty();
  LogDrained();
  admin->CloseStale(now_ns);
}

// Logs the end of a drain after which the process keeps running.
void Server::State::LogDrained() {
  const bool now_drained =
      !draining && front->Draining() && front->open_streams() == 0 && engine->Idle();
  if (now_drained && !drained) Log(Severity::kInfo, "drained: no request is left");
  drained = now_drained;
}

void Server::State::WatchThreads() {
  const absl::Status spare = CheckSpareThreads();
  if (spare.ok()) return;
  short_of_threads = true;
  Log(Severity::kError, "the system refuses threads: the process ends",
      {{"reason", std::string(spare.message())}});
}

void Server::State::WaitForDrain() {
  std::unique_lock lock(drain_mutex);
  while (!drain_requested && !faulted && !short_of_threads) {
    drain_changed.wait_for(lock, std::chrono::duration<double>(kWatchSeconds));
    lock.unlock();
    Watch();
    WatchThreads();
    const bool asked_by_client = front->ExitRequested();
    lock.lock();
    drain_requested = drain_requested || asked_by_client;
  }
}

template <typename Done>
void Server::State::WatchUntil(double seconds, Done done) {
  const int64_t start_ns = SteadyNowNs();
  std::mutex mutex;  // never notified: the wait is the time between two checks
  std::condition_variable never;
  std::unique_lock lock(mutex);
  while (!done()) {
    const double left = seconds - SecondsSince(start_ns);
    if (left <= 0) return;
    never.wait_for(lock, std::chrono::duration<double>(std::min(left, kDrainLookSeconds)));
    Watch();
  }
}

// From the watchdog of the shutdown, whose thread must not wait. Logs the step, and the calls by
// state.
void Server::State::LogHung() {
  constexpr char kHung[] = "shutdown hung: the process ends by force";
  const std::unique_lock lock(parts_mutex, std::try_to_lock);
  if (!lock.owns_lock() || front == nullptr || engine == nullptr) {
    return Log(Severity::kError, kHung, {{"step", ending.load()}});
  }
  const UnendedCalls calls = front->unended();
  const SchedulerLoad load = engine->Stats().load;
  Log(Severity::kError, kHung,
      {{"step", ending.load()},
       {"streams", calls.streams},
       {"calls", calls.calls},
       {"text_jobs", calls.text_jobs},
       {"running", load.running},
       {"waiting", load.waiting}});
}

void Server::State::ForceExit() {
  LogHung();
  StopLog();
  _exit(static_cast<int>(short_of_threads ? ExitCode::kRefused : ExitCode::kForced));
}

ExitCode Server::State::Drain() {
  const ServerConfig& config = settings.server;
  forced_exit.Arm(config.drain_delay_seconds + config.shutdown_timeout_seconds +
                  kForcedExitSeconds);
  const int64_t start_ns = SteadyNowNs();
  front->BeginExit();
  draining = true;
  front->SetServing(false);
  Log(Severity::kInfo, "draining: no longer ready",
      {{"open_streams", front->open_streams()},
       {"drain_delay", config.drain_delay_seconds},
       {"shutdown_timeout", config.shutdown_timeout_seconds}});
  WatchUntil(config.drain_delay_seconds, [this] { return faulted; });
  front->StartDrain();
  engine->StartDrain();
  WatchUntil(config.shutdown_timeout_seconds,
             [this] { return faulted || (front->open_streams() == 0 && engine->Idle()); });
  const int unfinished = front->open_streams();
  Log(unfinished > 0 ? Severity::kWarning : Severity::kInfo, "drain ended",
      {{"unfinished_streams", unfinished}, {"seconds", SecondsSince(start_ns)}});
  if (archive != nullptr && !faulted) {
    ending = "hand-over of sessions";
    archive->HandOver(std::max(0., config.shutdown_timeout_seconds - SecondsSince(start_ns)));
  }
  const EngineStats last = Stats();
  const std::string& fault = last.fault;
  TearDown();
  LogGraphUse(last);
  if (!fault.empty())
    Log(Severity::kError, "the process ends after a device fault", {{"fault", fault}});
  Log(Severity::kInfo, "stopped", {{"uptime", SecondsSince(started_ns)}});
  forced_exit.Disarm();
  if (!fault.empty()) return ExitCode::kDevice;
  return short_of_threads ? ExitCode::kRefused : ExitCode::kOk;
}

void Server::State::TearDown() {
  // The grace period is within the margin of the forced exit.
  ending = "calls";
  if (front != nullptr && engine != nullptr) front->Shutdown(kForcedExitSeconds / 2);
  ending = "session directory";
  if (archive != nullptr) archive->Stop();
  if (keeper != nullptr) keeper->StopWatch();  // it changes the engine's tenants
  std::unique_ptr<Engine> last_engine;
  std::unique_ptr<GrpcFront> last_front;
  {
    const std::lock_guard lock(parts_mutex);
    last_engine = std::move(engine);
    last_front = std::move(front);
  }
  ending = "engine";
  last_engine.reset();
  ending = "front";
  last_front.reset();
  ending = "session directory";
  archive.reset();  // may hold the last calls
  jobs.reset();
  keeper.reset();
  ending = "traces";
  tracer.reset();  // no call is left that could be traced
  ending = "metrics port";
  admin.reset();
}

// Pages.

std::string Server::State::Address() const {
  const FrontOptions& options = settings.server.front;
  if (!options.uds.empty()) return "unix:" + options.uds;
  const bool bare_ipv6 = options.host.find(':') != std::string::npos && options.host[0] != '[';
  const std::string host = bare_ipv6 ? "[" + options.host + "]" : options.host;
  return host + ":" + std::to_string(front->port());
}

// Because of a signal or of a client's Drain.
bool Server::State::Draining() {
  const std::lock_guard lock(parts_mutex);
  return draining || (front != nullptr && front->Draining());
}

const char* Server::State::StateName() {
  if (Draining()) return "draining";
  if (!ready) return "loading";
  if (Stats().recovering) return "recovering";
  return healthy ? "ready" : "hung";
}

AdminPage Server::State::StatusPageJson() {
  StatusFacts facts{.state = StateName(), .version = ThisBuild().version, .model = model.name};
  facts.uptime_seconds = SecondsSince(started_ns);
  facts.engine = Stats();
  facts.now = metrics.live().history.Last();
  facts.problems = LastProblems();
  const std::lock_guard lock(parts_mutex);
  if (ready && front != nullptr) {
    facts.device = model.device_description;
    facts.address = Address();
    facts.open_streams = front->open_streams();
    facts.detached_streams = front->detached_streams();
    facts.setup = &model.setup;
    // Asked ahead: this answer has the view of the last question.
    facts.view = metrics.live().view.Get(*engine, SteadyNowNs());
  }
  return {.content_type = "application/json", .body = StatusJson(facts)};
}

void Server::State::ShowTenants() {
  const std::lock_guard lock(parts_mutex);
  if (engine == nullptr || settings.server.api_keys.empty()) return;
  const std::vector<TenantStats> tenants = engine->Tenants();
  metrics.tenants().Set(tenants, keeper->NamesOf(tenants));
}

AdminPage Server::State::Page(std::string_view path) {
  if (path == "/metrics") {
    metrics.ServerState(StateName());
    ShowTenants();
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = metrics.Serialize(Stats())};
  }
  if (path == "/version") {
    return {.content_type = "application/json", .body = ToJson(ThisBuild()) + "\n"};
  }
  if (path == "/") return StatusPage();
  if (path == "/status.json") return StatusPageJson();
  if (path == "/history.json") {
    return {.content_type = "application/json", .body = HistoryJson(metrics.live().history.All())};
  }
  return ProbePage(path, {.ready = ready,
                          .healthy = healthy,
                          .recovering = Stats().recovering,
                          .draining = Draining(),
                          .state = StateName()});
}

Server::Server(const Settings& settings, int64_t started_ns, WorkerStarter start_workers)
    : state_(std::make_unique<State>(settings, started_ns, std::move(start_workers))) {}

Server::~Server() { state_->TearDown(); }

std::optional<StartError> Server::Start() {
  if (auto error = state_->Listen()) return error;
  if (auto error = state_->Load()) return error;
  return state_->Serve();
}

bool Server::Ready() const { return state_->ready; }

int Server::port() const { return state_->front->port(); }

int Server::metrics_port() const { return state_->admin->port(); }

ExitCode Server::Run() {
  state_->WaitForDrain();
  return state_->Drain();
}

void Server::RequestDrain() {
  const std::lock_guard lock(state_->drain_mutex);
  state_->drain_requested = true;
  state_->drain_changed.notify_all();
}

}  // namespace quire

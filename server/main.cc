// quire-server: reads its settings, serves until SIGTERM, and says by its exit code how it ended.
#include <grpc/grpc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/engine_workers.h"
#include "flags/refusal_exit.h"
#include "server/config/config_flags.h"
#include "server/dry_run.h"
#include "server/identity/key_table.h"
#include "server/server.h"
#include "server/session/archive/session_directory.h"
#include "server/start/model_check.h"
#include "server/start/plan_serving.h"
#include "server/tls/certificate_check.h"

namespace quire {
namespace {

int Exit(ExitCode code) { return static_cast<int>(code); }

Invocation ReadInvocation(int argc, char** argv, char** environment) {
  Invocation invocation;
  for (int i = 1; i < argc; ++i) invocation.arguments.emplace_back(argv[i]);
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const size_t equals = variable.find('=');
    const bool ours = variable.starts_with("QUIRE_") || variable.starts_with("OTEL_");
    if (!ours || equals == std::string_view::npos) continue;
    invocation.environment.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
  }
  return invocation;
}

// The bundled model lies beside an installed program, else in the source tree.
std::string DemoModel() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path installed = program.parent_path() / "../share/quire/models/demo";
  if (std::filesystem::exists(installed / "config.json", error)) {
    return std::filesystem::weakly_canonical(installed, error).string();
  }
  return QUIRE_SOURCE_DIR "/models/demo";
}

Severity SeverityOf(const std::string& level) {
  if (level == "debug") return Severity::kDebug;
  if (level == "warning") return Severity::kWarning;
  return level == "error" ? Severity::kError : Severity::kInfo;
}

void LogSettings(const ParsedSettings& parsed) {
  for (const std::string& notice : parsed.notices) {
    Log(Severity::kWarning, "setting", {{"notice", notice}});
  }
  for (const EffectiveSetting& setting : ListSettings(parsed)) {
    if (setting.source == SettingSource::kDefault) continue;
    Log(Severity::kInfo, "setting",
        {{"name", std::string(setting.name)},
         {"value", setting.value},
         {"source", Name(setting.source)}});
  }
}

// Ten thousand connections need as many descriptors; the soft limit is often 1024.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Blocked here, before any thread exists, so that only WatchSignals receives them.
sigset_t BlockStopSignals() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  return stop;
}

[[noreturn]] void EndNow(ExitCode code) {
  StopLog();
  _exit(Exit(code));
}

// The first signal drains (or ends a server that is still loading), the second ends at once.
void WatchSignals(sigset_t stop, Server* server) {
  int signal = 0;
  sigwait(&stop, &signal);
  Log(Severity::kInfo, "signal", {{"name", strsignal(signal)}});
  if (!server->Ready()) EndNow(ExitCode::kOk);
  server->RequestDrain();
  sigwait(&stop, &signal);
  Log(Severity::kWarning, "second signal: ending at once", {{"name", strsignal(signal)}});
  EndNow(ExitCode::kForced);
}

// A line of the log for each line of the reason: it may be a table.
ExitCode Complain(const StartError& error) {
  std::istringstream reason{std::string(error.status.message())};
  for (std::string line; std::getline(reason, line);) {
    Log(Severity::kError, "cannot start", {{"reason", line}});
  }
  return error.code;
}

int DryRun(const ParsedSettings& parsed) {
  StartError error;
  const std::optional<EngineSetup> setup = PlanServing(parsed.settings.engine, &error);
  if (!setup) return Exit(Complain(error));
  const absl::Status tls = CheckTlsFiles(parsed.settings.server.front.tls, time(nullptr));
  if (!tls.ok()) return Exit(Complain({ExitCode::kBadConfig, tls}));
  if (const std::string& keys = parsed.settings.server.api_keys; !keys.empty()) {
    const absl::Status table = ReadKeyTable(keys).status();
    if (!table.ok()) return Exit(Complain({ExitCode::kBadConfig, table}));
  }
  if (const std::string& folder = parsed.settings.server.session_dir; !folder.empty()) {
    const absl::Status usable = CheckSessionDirectory(folder);
    if (!usable.ok()) return Exit(Complain({ExitCode::kBadConfig, usable}));
  }
  const absl::StatusOr<std::string> text =
      CheckText(TextDirectory(parsed.settings), parsed.settings.server.chat_template);
  if (!text.ok()) return Exit(Complain({ExitCode::kModel, text.status()}));
  for (const std::string& notice : parsed.notices) std::fprintf(stderr, "%s\n", notice.c_str());
  std::fputs(DryRunJson(parsed, *setup, *text).c_str(), stdout);
  return Exit(ExitCode::kOk);
}

// Prints the page; the exit code is that of the start.
int Check(const ParsedSettings& parsed) {
  const CheckReport report = CheckModel(parsed.settings);
  for (const std::string& notice : parsed.notices) std::fprintf(stderr, "%s\n", notice.c_str());
  const bool json = parsed.settings.server.log_format == "json";
  std::fputs((json ? CheckJson(report) : CheckPage(report)).c_str(), stdout);
  return Exit(report.code());
}

void BeginLog(const ParsedSettings& parsed) {
  StartLog(parsed.settings.server.log_format == "json" ? LogFormat::kJson : LogFormat::kText,
           SeverityOf(parsed.settings.server.log_level));
  LogSettings(parsed);
}

// Runs this host's ranks for a leader on another one, until a signal.
[[noreturn]] void Follow(const ParsedSettings& parsed, sigset_t stop) {
  BeginLog(parsed);
  absl::StatusOr<std::unique_ptr<NodeAgent>> agent = FollowLeader(parsed.settings.engine);
  if (!agent.ok()) EndNow(Complain({ExitCode::kBadConfig, agent.status()}));
  int signal = 0;
  sigwait(&stop, &signal);
  Log(Severity::kInfo, "signal", {{"name", strsignal(signal)}});
  std::thread([stop] {
    int second = 0;
    sigwait(&stop, &second);
    EndNow(ExitCode::kForced);
  }).detach();
  agent->reset();
  EndNow(ExitCode::kOk);
}

[[noreturn]] void Serve(const ParsedSettings& parsed, sigset_t stop, int64_t started_ns) {
  // Never shut down: grpc_shutdown waits for its threads, and one may poll for ten seconds after a
  // flood of resets.
  grpc_init();
  BeginLog(parsed);
  RaiseDescriptorLimit();
  // Neither is destroyed: the signal thread may use the server until the process is gone.
  static Server* const server = new Server(parsed.settings, started_ns);
  std::thread(WatchSignals, stop, server).detach();
  // Workers may be running by now, so the destructors that exit() calls must not run.
  if (const std::optional<StartError> error = server->Start()) EndNow(Complain(*error));
  EndNow(server->Run());
}

int Main(int argc, char** argv, char** environment) {
  ExitOnRefusal(Exit(ExitCode::kRefused));
  const int64_t started_ns = SteadyNowNs();
  const sigset_t stop = BlockStopSignals();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow fails its write alone
  absl::StatusOr<ParsedSettings> parsed = ParseSettings(ReadInvocation(argc, argv, environment));
  if (!parsed.ok()) {
    std::fprintf(stderr, "%s\nquire-server --help lists all settings.\n",
                 std::string(parsed.status().message()).c_str());
    return Exit(ExitCode::kBadConfig);
  }
  if (parsed->settings.engine.model.empty()) parsed->settings.engine.model = DemoModel();
  switch (parsed->mode) {
    case StartMode::kHelp:
    case StartMode::kVersion:
    case StartMode::kManPage:
    case StartMode::kCompletion:
      std::fputs(parsed->answer.c_str(), stdout);
      return Exit(ExitCode::kOk);
    case StartMode::kDryRun: return DryRun(*parsed);
    case StartMode::kCheck: return Check(*parsed);
    case StartMode::kServe:
      if (parsed->settings.engine.node_rank > 0) Follow(*parsed, stop);
      Serve(*parsed, stop, started_ns);
  }
  return Exit(ExitCode::kBadConfig);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::Main(argc, argv, environ); }

// From a command line to the function that runs it.
#include "clients/cpp/quire.h"

#include <optional>
#include <string>

#include "clients/cpp/batch.h"
#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/report.h"
#include "clients/cpp/chat/chat.h"
#include "clients/cpp/control.h"
#include "clients/cpp/flags/invocation.h"
#include "clients/cpp/generate.h"
#include "clients/cpp/job/job.h"
#include "clients/cpp/key.h"
#include "clients/cpp/memory.h"
#include "clients/cpp/readings.h"
#include "clients/cpp/session/session.h"
#include "clients/cpp/tokens.h"
#include "clients/cpp/trace.h"

namespace quire::cli {
namespace {

int Run(const Invocation& line, Connection& connection, Terminal& terminal, Interrupt& interrupt) {
  switch (line.command) {
    case Command::kGenerate: return RunGenerate(line, connection, terminal);
    case Command::kAttach: return RunAttach(line, connection, terminal);
    case Command::kChat: return RunChat(line, connection, terminal, interrupt);
    case Command::kTokenize: return RunTokenize(line, connection, terminal);
    case Command::kDetokenize: return RunDetokenize(line, connection, terminal);
    case Command::kScore: return RunScore(line, connection, terminal);
    case Command::kEmbed: return RunEmbed(line, connection, terminal);
    case Command::kSession: return RunSession(line, connection, terminal);
    case Command::kJob: return RunJob(line, connection, terminal);
    case Command::kBatch: return RunBatch(line, connection, terminal);
    case Command::kInfo: return RunInfo(line, connection, terminal);
    case Command::kHealth: return RunHealth(line, connection, terminal);
    case Command::kAbort: return RunAbort(line, connection, terminal);
    case Command::kDrain: return RunDrain(line, connection, terminal);
    case Command::kFlush: return RunFlush(line, connection, terminal);
    case Command::kTrace: return RunTrace(line, connection, terminal);
    case Command::kMemory: return RunMemory(line, connection, terminal);
    case Command::kKey:
    case Command::kNone: break;
  }
  return kExitUsage;
}

}  // namespace

int RunQuire(const std::vector<std::string>& args, Terminal& terminal, Interrupt& interrupt) {
  const ParsedLine parsed = ParseInvocation(args);
  terminal.out << parsed.out << std::flush;
  terminal.err << parsed.err << std::flush;
  if (!parsed.invocation) return parsed.exit_code;
  if (parsed.invocation->command == Command::kKey) return RunKey(parsed.invocation->key, terminal);
  const absl::StatusOr<connect::Endpoint> endpoint =
      connect::ResolveEndpoint(parsed.invocation->connection, terminal.environment);
  if (!endpoint.ok()) {
    terminal.err << "quire: " << endpoint.status().message() << "\n";
    return kExitUsage;
  }
  terminal.server = endpoint->server;
  Connection connection(*endpoint, parsed.invocation->timeout_seconds, &interrupt,
                        terminal.traceparent);
  const Invocation& line = *parsed.invocation;
  const std::optional<std::string>& session =
      line.command == Command::kSession ? line.session.name : line.generate.session;
  if (session) connection.UseSession(*session);
  const int code = Run(*parsed.invocation, connection, terminal, interrupt);
  terminal.out.flush();
  if (interrupt.raised()) {
    terminal.err << "quire: interrupted\n";
    return kExitInterrupted;
  }
  if (code == kExitOk && !terminal.out) {
    terminal.err << "quire: cannot write the output\n";
    return kExitLocal;
  }
  return code;
}

}  // namespace quire::cli

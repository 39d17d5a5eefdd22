// Entry point of `quire`: turns ctrl-C into a cancelled RPC and hands the rest to RunQuire.
#include <google/protobuf/stubs/logging.h>
#include <langinfo.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "clients/cpp/call/interrupt.h"
#include "clients/cpp/call/report.h"
#include "clients/cpp/flags/exit_codes.h"
#include "clients/cpp/quire.h"
#include "flags/refusal_exit.h"

namespace {

// Waits for SIGINT for as long as the process lives. The first one cancels the running call; one
// that finds no call, or a second one, ends the process, unless a chat survives it.
void WaitForInterrupts(quire::cli::Interrupt* interrupt, sigset_t signals) {
  for (;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    const bool again = interrupt->raised();
    const bool cancelled = interrupt->Raise();
    if ((again || !cancelled) && !interrupt->survivable()) _exit(quire::cli::kExitInterrupted);
  }
}

// Lines are edited by characters, which are UTF-8 also where the environment names no language.
void UseUtf8() {
  setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") setlocale(LC_CTYPE, "C.UTF-8");
}

// $XDG_STATE_HOME/quire, by default ~/.local/state/quire; empty when there is no home.
std::string StateFolder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::string(state) + "/quire";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return "";
  return std::string(home) + "/.local/state/quire";
}

}  // namespace

int main(int argc, char** argv) {
  quire::ExitOnRefusal(quire::cli::kExitRefused);
  // Statuses say what went wrong; the library would print it beside them.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // The server refuses bytes that are not UTF-8 with a reason; the library's log line adds none.
  google::protobuf::SetLogHandler(nullptr);
  // Blocked before gRPC starts its threads, so that only the waiting thread ever sees the signal.
  // The thread outlives main's locals, hence the leak.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  auto* interrupt = new quire::cli::Interrupt;
  std::thread(WaitForInterrupts, interrupt, signals).detach();

  std::ios::sync_with_stdio(false);
  UseUtf8();
  const bool typed = isatty(STDIN_FILENO) == 1;
  const char* const traceparent = std::getenv("TRACEPARENT");
  quire::cli::Terminal terminal{std::cin,
                                std::cout,
                                std::cerr,
                                typed,
                                typed,
                                StateFolder(),
                                traceparent == nullptr ? "" : traceparent,
                                "",
                                quire::connect::EnvironmentOf(environ)};
  return quire::cli::RunQuire(std::vector<std::string>(argv + 1, argv + argc), terminal,
                              *interrupt);
}

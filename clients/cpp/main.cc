// Entry point of `quire`: turns ctrl-C into a cancelled RPC and hands the rest to RunQuire.
#include <google/protobuf/stubs/logging.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "clients/cpp/call/interrupt.h"
#include "clients/cpp/call/report.h"
#include "clients/cpp/quire.h"

namespace {

// Waits for SIGINT for as long as the process lives. The first one cancels what runs; one that
// finds nothing to cancel, or a second one, ends the process.
void WaitForInterrupts(quire::cli::Interrupt* interrupt, sigset_t signals) {
  for (bool first = true;; first = false) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (!first || !interrupt->Raise()) _exit(quire::cli::kExitInterrupted);
  }
}

}  // namespace

int main(int argc, char** argv) {
  // Bytes that are not UTF-8 are refused by the server with a reason; the library's log line adds
  // none.
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
  quire::cli::Terminal terminal{std::cin, std::cout, std::cerr, isatty(STDIN_FILENO) == 1};
  return quire::cli::RunQuire(std::vector<std::string>(argv + 1, argv + argc), terminal,
                              *interrupt);
}

// Entry point of quire-load: turns ctrl-C into a request to stop and hands the rest to
// RunLoadCommand.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "clients/load/load_command.h"
#include "clients/load/options.h"
#include "flags/refusal_exit.h"

namespace {

constexpr int kExitInterrupted = 130;  // as shells report SIGINT

// Waits for SIGINT and SIGTERM for as long as the process lives. The first ends the run, whose
// results are then reported; the second ends the process.
void WaitForSignals(std::stop_source stop, sigset_t signals) {
  for (bool first = true;; first = false) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (!first) _exit(kExitInterrupted);
    stop.request_stop();
  }
}

}  // namespace

int main(int argc, char** argv) {
  quire::ExitOnRefusal(quire::load::kExitRefused);
  // Statuses say what went wrong; the library would print it beside them.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // Blocked before gRPC starts its threads, so that only the waiting thread ever sees a signal.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::stop_source stop;
  std::thread(WaitForSignals, stop, signals).detach();
  return quire::load::RunLoadCommand(
      std::vector<std::string>(argv + 1, argv + argc), stop.get_token(),
      {std::cout, std::cerr, isatty(STDERR_FILENO) == 1, quire::connect::EnvironmentOf(environ)});
}

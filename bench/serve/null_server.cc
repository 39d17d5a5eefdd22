// A server without a model, for load tests of everything else: the real front end, engine and
// scheduler over a worker whose tokens cost nothing. Serves until SIGTERM or SIGINT; stdin is not
// read. The line "READY address=... metrics_port=..." on stderr says where, as quire-server's does.
#include <signal.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "bench/serve/paced_server.h"
#include "flags/help.h"
#include "flags/parser.h"

namespace {

int Serve(const quire::PacedServerOptions& options) {
  // Blocked before any thread starts, so that only the wait below takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  quire::PacedServer server(options);
  if (const absl::Status status = server.Start(); !status.ok()) {
    std::fprintf(stderr, "null_server: %s\n", status.ToString().c_str());
    return 1;
  }
  std::fprintf(stderr, "READY address=127.0.0.1:%d port=%d metrics_port=%d model=null\n",
               server.port(), server.port(), server.metrics_port());
  const timespec second{.tv_sec = 1};
  while (sigtimedwait(&signals, nullptr, &second) < 0) server.Tick();
  return 0;
}

struct StepTimes {
  double step_ms = 0, token_us = 0;
};

quire::flags::Program NullServerProgram(quire::PacedServerOptions* options, StepTimes* times) {
  constexpr std::string_view kGroup = "Settings";
  return {.root = {.name = "null_server",
                   .help = "The server without a model.",
                   .flags = {
                       {.name = "port",
                        .group = kGroup,
                        .help = "gRPC port; 0: any free port",
                        .target = &options->front.port,
                        .highest = 65535},
                       {.name = "metrics-port",
                        .group = kGroup,
                        .help = "metrics port; 0: any free port; -1: none",
                        .target = &options->metrics_port,
                        .lowest = -1,
                        .highest = 65535},
                       {.name = "uds",
                        .group = kGroup,
                        .help = "path of a Unix socket for gRPC, instead of the port",
                        .target = &options->front.uds},
                       {.name = "ssl-certfile",
                        .group = kGroup,
                        .help = "PEM file of the server's certificate; turns TLS on",
                        .target = &options->front.tls.certificate},
                       {.name = "ssl-keyfile",
                        .group = kGroup,
                        .help = "PEM file of its key",
                        .target = &options->front.tls.key},
                       {.name = "ssl-ca-certs",
                        .group = kGroup,
                        .help = "PEM file of the authorities of clients' certificates",
                        .target = &options->front.tls.client_ca},
                       {.name = "max-num-seqs",
                        .group = kGroup,
                        .help = "maximum number of requests that run at once",
                        .target = &options->num_streams,
                        .lowest = 1,
                        .highest = 1 << 16},
                       {.name = "max-num-queued-reqs",
                        .group = kGroup,
                        .help = "maximum number of waiting requests",
                        .target = &options->num_queued,
                        .lowest = 1,
                        .highest = 1 << 20},
                       {.name = "max-model-len",
                        .group = kGroup,
                        .help = "maximum number of tokens of prompt and output",
                        .target = &options->max_model_len,
                        .lowest = 16,
                        .highest = 1 << 20},
                       {.name = "prefill-tokens",
                        .group = kGroup,
                        .help = "prompt tokens of one step",
                        .target = &options->num_prefill_tokens,
                        .lowest = 1,
                        .highest = 1 << 24},
                       {.name = "step-ms",
                        .group = kGroup,
                        .help = "duration of a step, in which each stream gets a token",
                        .target = &times->step_ms,
                        .highest = 60'000},
                       {.name = "token-us",
                        .group = kGroup,
                        .help = "added to that for each token of the step",
                        .target = &times->token_us,
                        .highest = 1e6},
                   }}};
}

}  // namespace

int main(int argc, char** argv) {
  quire::PacedServerOptions options;
  options.num_streams = 2048;
  options.num_queued = 16384;
  options.metrics_port = 0;
  options.front.resource_quota_bytes = int64_t{1} << 30;
  StepTimes times;
  const quire::flags::Program program = NullServerProgram(&options, &times);
  quire::flags::CommandLine line =
      quire::flags::ReadArguments(program, std::vector<std::string>(argv + 1, argv + argc));
  if (const auto answer = quire::flags::Answer(program, line)) {
    std::fputs(answer->c_str(), stdout);
    return 0;
  }
  quire::flags::Apply(program, line.given, quire::flags::AsFlag, &line);
  for (const std::string& fault : line.faults) std::fprintf(stderr, "%s\n", fault.c_str());
  if (!line.faults.empty()) return 2;
  options.step_ns = static_cast<int64_t>(times.step_ms * 1e6);
  options.token_ns = static_cast<int64_t>(times.token_us * 1e3);
  options.front.max_open_streams = options.num_streams + options.num_queued + 1024;
  return Serve(options);
}

// A server without a model, for load tests of everything else: the real front end, engine and
// scheduler over a worker whose tokens cost nothing. Serves until SIGTERM or SIGINT; stdin is not
// read. The line "READY address=... metrics_port=..." on stderr says where, as quire-server's does.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "bench/serve/paced_server.h"

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

}  // namespace

int main(int argc, char** argv) {
  quire::PacedServerOptions options;
  options.num_streams = 2048;
  options.num_queued = 16384;
  options.metrics_port = 0;
  options.front.resource_quota_bytes = int64_t{1} << 30;
  double step_ms = 0, token_us = 0;
  CLI::App app("null_server: the server without a model");
  app.add_option("--port", options.front.port, "for gRPC; 0: any free one");
  app.add_option("--metrics-port", options.metrics_port, "for /metrics; 0: any free one; -1: none");
  app.add_option("--uds", options.front.uds, "Unix socket for gRPC, instead of the port");
  app.add_option("--max-num-seqs", options.num_streams, "requests that run at once")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--max-num-queued-reqs", options.num_queued, "requests that may wait")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--max-model-len", options.max_model_len, "tokens of prompt and output")
      ->check(CLI::Range(16, 1 << 20));
  app.add_option("--prefill-tokens", options.num_prefill_tokens, "prompt tokens of one step")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--step-ms", step_ms, "duration of a step: each stream gets a token a step")
      ->check(CLI::Range(0.0, 60'000.0));
  app.add_option("--token-us", token_us, "and so much longer for each token of the step")
      ->check(CLI::Range(0.0, 1e6));
  CLI11_PARSE(app, argc, argv);
  options.step_ns = static_cast<int64_t>(step_ms * 1e6);
  options.token_ns = static_cast<int64_t>(token_us * 1e3);
  options.front.max_open_streams = options.num_streams + options.num_queued + 1024;
  return Serve(options);
}

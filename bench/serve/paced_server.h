// PacedServer: the real front end, detokeniser, scheduler and engine over a worker whose tokens
// cost nothing and whose steps take a given time, for benchmarks of everything but the model.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "server/admin/admin_http.h"
#include "server/call/serving_model.h"
#include "server/front/grpc_front.h"
#include "server/metrics/metrics.h"

namespace quire {

struct PacedServerOptions {
  FrontOptions front{.port = 0};
  int32_t num_streams = 256;  // that run at once
  int32_t num_queued = 1024;
  int32_t max_model_len = 4096;
  // Tokens that the prompts' chunks of one step may have together.
  int32_t num_prefill_tokens = 2048;
  int metrics_port = -1;  // serves /metrics; 0: any free one, -1: none
  // A step takes step_ns and token_ns for each of its tokens. Both 0: as fast as it goes, which is
  // faster than any reader.
  int64_t step_ns = 0;
  int64_t token_ns = 0;
};

// Any thread may ask for the ports and change the pace.
class PacedServer {
 public:
  explicit PacedServer(const PacedServerOptions& options);
  // Ends running requests.
  ~PacedServer();

  // Listens and serves; once. UNAVAILABLE when a port is taken.
  absl::Status Start();
  int port() const { return front_->port(); }
  int metrics_port() const { return admin_ == nullptr ? -1 : admin_->port(); }
  void SetStep(int64_t step_ns) { step_ns_.store(step_ns); }
  // To be called about every second: ends connections of the metrics port that take too long.
  void Tick();

 private:
  const PacedServerOptions options_;
  std::atomic<int64_t> step_ns_;
  ServingModel model_;
  std::unique_ptr<ServerMetrics> metrics_;
  std::unique_ptr<GrpcFront> front_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<AdminHttp> admin_;  // destroyed first: its page reads the members above
};

}  // namespace quire

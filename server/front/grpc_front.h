// GrpcFront: the gRPC face of the server: listeners, services, health, reflection, and the streams
// of live requests. Built against the traps of gRPC 1.51 that docs/grpc.md lists.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/worker/shm/host_arena.h"
#include "server/call/front_options.h"
#include "server/call/serving_model.h"
#include "server/metrics/metrics.h"

namespace quire {

// True while the engine makes progress or has nothing to do. Idle and busy are not sick: false only
// when work waits and neither has a step retired nor has the work arrived within `limit_seconds`,
// or when the worker group has died, until another has taken its place.
bool IsHealthy(const EngineStats& stats, int64_t now_ns, double limit_seconds);

class GrpcFront : public OutputSink {
 public:
  // Builds the front without listening; the engine is attached before Start (it needs this as its
  // sink).
  static std::unique_ptr<GrpcFront> Create(const FrontOptions& options, const ServingModel* model,
                                           ServerMetrics* metrics);
  // Binds and serves. ALREADY_EXISTS-like failures (port in use, socket path live) come back as
  // UNAVAILABLE with the address and what to do.
  // `arenas` by rank, for the export and import of sessions; empty where there is no host memory.
  virtual absl::Status Start(Engine* engine, HostArenas arenas = {}) = 0;
  virtual int port() const = 0;
  // Flips grpc.health.v1 of every service.
  virtual void SetServing(bool serving) = 0;
  // Refuses new requests with UNAVAILABLE; running streams go on.
  virtual void StartDrain() = 0;
  // True once a client has asked for Drain with exit_when_idle.
  virtual bool DrainRequested() const = 0;
  // True once new requests are refused, whoever asked for it.
  virtual bool Draining() const = 0;
  virtual int open_streams() const = 0;
  // Ends what still runs with UNAVAILABLE, closes the listeners and joins within `grace_seconds`.
  virtual void Shutdown(double grace_seconds) = 0;
};

}  // namespace quire

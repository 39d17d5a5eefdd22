// GrpcFront: the server's gRPC side: listeners, services, health, reflection, and the streams of
// live requests. It avoids the traps of gRPC 1.51 that docs/grpc.md lists.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/worker/shm/host_arena.h"
#include "server/call/front_options.h"
#include "server/call/serving_model.h"
#include "server/call/turn_archive.h"
#include "server/metrics/metrics.h"

namespace quire {

class JobRunner;
class Tracer;

// True while the engine makes progress or is idle. False if work waits, no step has retired and no
// work has arrived within `limit_seconds`; and from the death of the worker group until another one
// has replaced it.
bool IsHealthy(const EngineStats& stats, int64_t now_ns, double limit_seconds);

// The calls that have not ended.
struct UnendedCalls {
  int streams = 0;        // of Generate and its like, watches, exports and imports, where admitted
  int calls = 0;          // of all methods, those that were refused or reset too
  int64_t text_jobs = 0;  // that wait or run
};

class GrpcFront : public OutputSink {
 public:
  // Builds the front without listening. The engine needs the front as its sink, so Start attaches
  // the engine later. `model`, `metrics` and `tracer` outlive the front. A null `tracer`: no call
  // is traced.
  static std::unique_ptr<GrpcFront> Create(const FrontOptions& options, const ServingModel* model,
                                           ServerMetrics* metrics, Tracer* tracer = nullptr);
  // Binds and serves. UNAVAILABLE if the port or the socket path is in use; the message names the
  // address and says what to do. `arenas` are by rank, for the export and import of sessions; empty
  // if there is no host memory. `archive` keeps the sessions beyond the server's life, `jobs` runs
  // jobs; both outlive the streams, and where they are null, nothing does.
  virtual absl::Status Start(Engine* engine, HostArenas arenas = {}, TurnArchive* archive = nullptr,
                             JobRunner* jobs = nullptr) = 0;
  virtual int port() const = 0;
  // Sets grpc.health.v1 of every service; NOT_SERVING as long as the front drains. Any thread.
  virtual void SetServing(bool serving) = 0;
  // From now on the process is ending: Control.Undrain is refused. Any thread.
  virtual void BeginExit() = 0;
  // Refuses new requests with UNAVAILABLE; running streams continue. Control.Undrain undoes it
  // unless the process is ending.
  virtual void StartDrain() = 0;
  // True once a client has called Control.Drain with exit_when_idle.
  virtual bool ExitRequested() const = 0;
  // True while new requests are refused, by StartDrain or Control.Drain. Any thread.
  virtual bool Draining() const = 0;
  virtual int open_streams() const = 0;
  // Requests that run, or whose answers are kept, without a reader.
  virtual int detached_streams() const = 0;
  // After Start. Any thread.
  virtual UnendedCalls unended() const = 0;
  // Ends what still runs with UNAVAILABLE, closes the listeners and joins within `grace_seconds`.
  virtual void Shutdown(double grace_seconds) = 0;
};

}  // namespace quire

// ServerMetrics: every exported metric as a named member, under quire_* names and, where vLLM has
// the same fact, under its name too. docs/metrics.md documents each. Any thread: counters and
// histograms are the library's own thread-safe ones, looked up once here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/values/output_sink.h"

namespace quire {

struct MemoryPlan;
struct WorkerReport;

class ServerMetrics {
 public:
  explicit ServerMetrics(const std::string& model_name);
  ~ServerMetrics();

  // One request that the engine accepted has ended.
  void RequestFinished(const FinishEvent& event);
  // A request was refused at the door with this gRPC status code.
  void RequestRejected(int grpc_code);
  // Seconds between two consecutive tokens of one stream, as retired by the engine.
  void InterTokenLatency(double seconds);
  void RpcFinished(const std::string& method, int grpc_code, double seconds);
  // A connection was closed as soon as it came.
  void ConnectionRejected();
  void StreamOpened();
  void StreamClosed();
  // A streaming call of the Sessions service began, and is done: "Watch", "Export" or "Import".
  void SessionStreamOpened(const std::string& method);
  void SessionStreamClosed(const std::string& method);
  // A stream's buffer filled because its reader is slow: paused, or in the end shed.
  void StreamPaused();
  void StreamShed();
  // Seconds from a cancel reaching the server to the end of the request in the scheduler.
  void CancelToFree(double seconds);
  // Start-up phases: "plan", "tokenizer", "weights", "listen", and "ready" for all together.
  void StartupPhase(const std::string& phase, double seconds);
  // What each rank's memory is planned to go to. Once, at start.
  void MemoryPlanned(const MemoryPlan& plan);
  // What starting the workers took. Once, at start.
  void WorkersStarted(const WorkerReport& report);

  // The exposition text; gauges are refreshed from `stats` first.
  std::string Serialize(const EngineStats& stats);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire

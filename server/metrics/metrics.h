// ServerMetrics: every exported metric, under a quire_* name and, where vLLM exports the same fact,
// under vLLM's name too. docs/metrics.md documents each. Any thread: the library's counters and
// histograms are thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/values/output_sink.h"

namespace quire {

class ArchiveMetrics;
class JobMetrics;
class AuthMetrics;
class OtlpMetrics;
class TenantMetrics;
class GpuMetrics;
class GuideMetrics;
class TlsMetrics;
struct LiveFigures;
struct MetricRegistry;
struct MemoryPlan;
struct WorkerReport;

class ServerMetrics {
 public:
  explicit ServerMetrics(const std::string& model_name);
  ~ServerMetrics();

  // A request that the engine accepted has ended; `max_tokens` is its effective limit.
  void RequestFinished(const FinishEvent& event, int32_t max_tokens);
  // A request was refused before the engine accepted it, with this gRPC status code.
  void RequestRejected(int grpc_code);
  // Seconds between two consecutive tokens of one stream, when the engine retired them.
  void InterTokenLatency(double seconds);
  // Seconds from a request's arrival to its first token, when the engine retired it. For
  // live().first_token: the histogram counts requests that have ended.
  void FirstToken(double seconds);
  void RpcFinished(const std::string& method, int grpc_code, double seconds);
  // A connection was closed on arrival.
  void ConnectionRejected();
  void StreamOpened();
  void StreamClosed();
  // A long call began or ended: "Watch", "Export", "Import", "Trace", "GetTokenizer", "FlushCache",
  // or, by any other name, a subscription to KV events; with or without a service's name before it.
  void SessionStreamOpened(const std::string& method);
  void SessionStreamClosed(const std::string& method);
  // A stream's buffer filled because its reader is slow: the request was paused, or the stream
  // ended.
  void StreamPaused();
  void StreamShed();
  // Seconds from a cancel reaching the server to the request's FinishEvent.
  void CancelToEnd(double seconds);
  // Start-up phases: "plan", "tokenizer", "weights", "listen", and "ready" for their sum.
  void StartupPhase(const std::string& phase, double seconds);
  // The memory plan of a rank. Call once, at start.
  void MemoryPlanned(const MemoryPlan& plan);
  // Times and memory of the workers' start. Call once, at start.
  void WorkersStarted(const WorkerReport& report);

  // What /readyz answers: "loading", "ready", "recovering", "draining" or "hung".
  void ServerState(const std::string& name);

  // Of the session directory.
  ArchiveMetrics& archive();
  JobMetrics& jobs();
  // Of the tenants of the key file.
  TenantMetrics& tenants();
  // Of callers that were refused, and of the key file.
  AuthMetrics& auth();
  // Of spans and their export.
  OtlpMetrics& otlp();
  // Of certificates and handshakes.
  TlsMetrics& tls();
  // Of structured outputs.
  GuideMetrics& guides();
  // Of the GPUs.
  GpuMetrics& gpus();

  // Where a part of the server registers metrics of its own, once.
  MetricRegistry& registry();

  // Of the status page and Control.GetMemory.
  LiveFigures& live();

  // The exposition text, with gauges refreshed from `stats`.
  std::string Serialize(const EngineStats& stats);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire

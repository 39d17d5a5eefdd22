// Registers every exported metric once. A vllm: name is a copy of the collected quire_ metric, so
// the two never differ.
#include "server/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/engine_setup.h"
#include "kernels/check.h"
#include "server/metrics/archive_metrics.h"
#include "server/metrics/auth_metrics.h"
#include "server/metrics/cache_metrics.h"
#include "server/metrics/exposition.h"
#include "server/metrics/gpu_metrics.h"
#include "server/metrics/guide_metrics.h"
#include "server/metrics/live_figures.h"
#include "server/metrics/metric_registry.h"
#include "server/metrics/otlp_metrics.h"
#include "server/metrics/process/process_stats.h"
#include "server/metrics/tenant_metrics.h"
#include "server/metrics/tls_metrics.h"
#include "version/build_facts.h"

namespace quire {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using Buckets = Histogram::BucketBoundaries;

// Edges chosen as those of FirstTokenBuckets.
Buckets TokenBuckets() {
  return {.00025, .0005, .001, .002, .003, .004, .005, .006, .008, .01, .015, .02, .025, .05, .075,
          .1,     .15,   .2,   .3,   .4,   .5,   .75,  1,    2.5,  5,   7.5,  10,  20,   40,  80};
}
Buckets RequestBuckets() {
  return {.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .3,  .5,  .8,  1,   1.5,  2,
          2.5,   5,    10,    15,   20,  30,   40,  50, 60, 120, 240, 480, 960, 1920, 7680};
}
Buckets CountBuckets() {
  return {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
          2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
}

// A second name of a metric.
struct Alias {
  const char* name;
  const char* second;
};
constexpr Alias kAliases[] = {
    {"quire_requests_running", "vllm:num_requests_running"},
    {"quire_requests_waiting", "vllm:num_requests_waiting"},
    {"quire_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"},
    {"quire_kv_cache_usage_ratio", "vllm:gpu_cache_usage_perc"},
    {"quire_kv_cache_info", "vllm:cache_config_info"},
    {"quire_generated_tokens_total", "vllm:generation_tokens_total"},
    {"quire_preemptions_total", "vllm:num_preemptions_total"},
    {"quire_guessed_tokens_total", "vllm:spec_decode_num_draft_tokens_total"},
    {"quire_accepted_guesses_total", "vllm:spec_decode_num_accepted_tokens_total"},
    {"quire_prefix_cache_queried_tokens_total", "vllm:prefix_cache_queries_total"},
    {"quire_kv_stored_bytes_total", "vllm:kv_offload_store_bytes_total"},
    {"quire_kv_loaded_bytes_total", "vllm:kv_offload_load_bytes_total"},
    {"quire_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"quire_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
    {"quire_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"},
    {"quire_time_per_output_token_seconds", "vllm:time_per_output_token_seconds"},
    {"quire_request_seconds", "vllm:e2e_request_latency_seconds"},
    {"quire_request_queue_seconds", "vllm:request_queue_time_seconds"},
    {"quire_request_inference_seconds", "vllm:request_inference_time_seconds"},
    {"quire_request_prefill_seconds", "vllm:request_prefill_time_seconds"},
    {"quire_request_decode_seconds", "vllm:request_decode_time_seconds"},
    {"quire_request_prompt_tokens", "vllm:request_prompt_tokens"},
    {"quire_request_computed_prompt_tokens", "vllm:request_prefill_kv_computed_tokens"},
    {"quire_request_generated_tokens", "vllm:request_generation_tokens"},
    // vLLM: of the longest sequence of a request; a request has one sequence here.
    {"quire_request_generated_tokens", "vllm:request_max_num_generation_tokens"},
    {"quire_request_max_tokens", "vllm:request_params_max_tokens"},
    {"quire_tokens_per_step", "vllm:iteration_tokens_total"},
    // The old name, kept for two minor releases.
    {"quire_cancel_to_end_seconds", "quire_cancel_to_free_seconds"},
};

constexpr FinishReason kReasons[] = {
    FinishReason::kEos,       FinishReason::kStopToken,    FinishReason::kStopText,
    FinishReason::kMaxTokens, FinishReason::kContextLimit, FinishReason::kDeadline,
    FinishReason::kCancelled, FinishReason::kSlowReader,   FinishReason::kDraining,
    FinishReason::kNumeric,   FinishReason::kEngineFault,  FinishReason::kLoop,
    FinishReason::kNoToken,   FinishReason::kTruncated,
};
constexpr size_t kNumReasons = static_cast<size_t>(FinishReason::kEngineFault) + 1;

// gRPC and Abseil share the names and numbers of status codes.
std::string CodeName(int grpc_code) {
  const std::string name = absl::StatusCodeToString(static_cast<absl::StatusCode>(grpc_code));
  return name.empty() ? "UNKNOWN" : name;
}

double Seconds(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

double SecondsSince1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// vLLM labels its metrics with the number of the engine; a server has one.
void LabelEngine(prometheus::MetricFamily& family) {
  for (prometheus::ClientMetric& metric : family.metric) {
    metric.label.insert(metric.label.begin() + 1, {"engine", "0"});  // after model_name
  }
}

}  // namespace

struct ServerMetrics::State : MetricRegistry {
  using MetricRegistry::MetricRegistry;

  // Process metrics have no label model_name, by Prometheus' convention.
  Gauge& ProcessGauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add({});
  }

  void RefreshEngine(const EngineStats& stats);
  void RaiseSampled(const std::vector<SampledSteps>& ranks);
  void RaiseStepSizes(const StepSizes& sizes);
  void RefreshProcess();

  CacheMetrics cache{*this};
  ArchiveMetrics archive{*this};
  JobMetrics jobs{*this};
  AuthMetrics auth{*this};
  TenantMetrics tenants{*this};
  OtlpMetrics otlp{*this};
  GpuMetrics gpus{*this};
  TlsMetrics tls{*this};
  GuideMetrics guides{*this};
  LiveFigures live;

  // Load: refreshed by each scrape from the engine's counts.
  Gauge& running = OneGauge("quire_requests_running", "Requests that hold a row of the batch.");
  Gauge& waiting =
      OneGauge("quire_requests_waiting", "Requests in the queue, including preempted ones.");
  Gauge& waiting_tokens =
      OneGauge("quire_waiting_prompt_tokens", "Prompt tokens of the waiting requests.");
  Gauge& live_tokens = OneGauge("quire_running_tokens", "Known tokens of the running requests.");
  Gauge& kv_blocks = OneGauge("quire_kv_blocks", "Usable blocks of the KV cache.");
  Gauge& kv_blocks_free =
      OneGauge("quire_kv_blocks_free", "Unused blocks of the KV cache, including cached ones.");
  Gauge& kv_usage =
      OneGauge("quire_kv_cache_usage_ratio", "Fraction of the KV cache in use, 0 to 1.");
  Gauge& step_tokens = OneGauge("quire_step_tokens", "Tokens of the last retired step.");
  Gauge& step_seconds =
      OneGauge("quire_step_seconds", "Duration of the last retired step in the worker.");
  Gauge& prompt_budget = OneGauge("quire_step_prompt_budget",
                                  "Prompt tokens that the last step with prompts could have.");
  Gauge& cost_error = OneGauge("quire_step_prediction_error_ratio",
                               "Mean of |measured / predicted - 1| of the time of recent steps.");
  Gauge& step_age = OneGauge("quire_step_age_seconds",
                             "Seconds since the last step retired; 0 if no request is live.");
  Gauge& fault =
      OneGauge("quire_engine_fault", "1 once the worker group has died and will not be replaced.");
  Gauge& recovering =
      OneGauge("quire_engine_recovering", "1 while dead workers are being replaced.");
  Counter& recoveries = OneCounter("quire_engine_recoveries_total", "Worker restarts.");
  Counter& rank_mismatches =
      OneCounter("quire_rank_mismatches_total", "Steps on which ranks disagreed.");
  Counter& steps = OneCounter("quire_steps_total", "Retired steps.");
  Histogram& step_sizes = OneHistogram("quire_tokens_per_step", "Tokens computed by a step.",
                                       Buckets(StepSizes::kEdges.begin(), StepSizes::kEdges.end()));
  StepSizes counted_sizes;  // under scrape_mutex; those that step_sizes has
  Counter& prompt_tokens = OneCounter("quire_prompt_tokens_total",
                                      "Known tokens computed; a preempted request counts again.");
  Counter& generated_tokens = OneCounter("quire_generated_tokens_total", "Tokens sampled.");
  Counter& preemptions =
      OneCounter("quire_preemptions_total", "Times that a running request was preempted.");
  Counter& guessed_tokens =
      OneCounter("quire_guessed_tokens_total", "Tokens guessed ahead that steps verified.");
  Counter& accepted_guesses =
      OneCounter("quire_accepted_guesses_total", "Guessed tokens that were right.");

  // Requests.
  std::array<Counter*, kNumReasons> finished{};
  std::array<Counter*, kNumReasons> vllm_success{};
  Counter& corrupted = OneCounter("vllm:corrupted_requests_total",
                                  "Requests that ended because their logits were not numbers.");
  Histogram& first_token = OneHistogram("quire_time_to_first_token_seconds",
                                        "Time from arrival to first token.", FirstTokenBuckets());
  // Of predictions: by how much the first token came before or after the predicted time.
  Family<Histogram>& prediction_error =
      Histograms("quire_first_token_prediction_error_seconds",
                 "Difference of predicted and actual time to first token, by its direction.");
  Histogram& came_early = prediction_error.Add({{"direction", "early"}}, FirstTokenBuckets());
  Histogram& came_late = prediction_error.Add({{"direction", "late"}}, FirstTokenBuckets());
  Counter& deadline_refusals =
      OneCounter("quire_deadline_refusals_total",
                 "Requests refused because their first token was predicted after their deadline.");
  Histogram& inter_token =
      OneHistogram("quire_inter_token_latency_seconds",
                   "Time between two consecutive tokens of a stream.", TokenBuckets());
  Histogram& per_token =
      OneHistogram("quire_time_per_output_token_seconds",
                   "Mean time per output token of a request, without the first.", TokenBuckets());
  Histogram& request_time =
      OneHistogram("quire_request_seconds", "Time from arrival to end.", RequestBuckets());
  Histogram& queue_time = OneHistogram("quire_request_queue_seconds",
                                       "Time from arrival to first step.", RequestBuckets());
  Histogram& inference_time = OneHistogram("quire_request_inference_seconds",
                                           "Time from first step to last token.", RequestBuckets());
  Histogram& prefill_time = OneHistogram("quire_request_prefill_seconds",
                                         "Time from first step to first token.", RequestBuckets());
  Histogram& decode_time = OneHistogram("quire_request_decode_seconds",
                                        "Time from first token to last token.", RequestBuckets());
  Histogram& prompt_length =
      OneHistogram("quire_request_prompt_tokens", "Prompt tokens of a request.", CountBuckets());
  Histogram& computed_length =
      OneHistogram("quire_request_computed_prompt_tokens",
                   "Prompt tokens of a request whose KV was not found.", CountBuckets());
  Histogram& output_length =
      OneHistogram("quire_request_generated_tokens", "Output tokens of a request.", CountBuckets());
  Histogram& max_tokens = OneHistogram("quire_request_max_tokens",
                                       "Effective max_tokens of a request.", CountBuckets());
  Histogram& num_outputs = OneHistogram(
      "vllm:request_params_n", "Outputs that a request asks for: always 1.", {1, 2, 5, 10, 20});
  // The request's row and blocks return up to two steps later.
  Histogram& cancel_to_end =
      OneHistogram("quire_cancel_to_end_seconds",
                   "Time from the arrival of a cancel to the request's end.", TokenBuckets());

  // Streams and calls. The labels of rejections and calls depend on the calls, so they are looked
  // up under `mutex`.
  Counter& connections_rejected =
      OneCounter("quire_connections_rejected_total", "Connections closed on arrival.");
  Gauge& streams = OneGauge("quire_streams_open", "Open Generate calls.");
  Gauge& watches = OneGauge("quire_session_watches", "Open Watch calls.");
  Gauge& kv_subscribers =
      OneGauge("quire_kv_event_subscribers", "Open calls that are told of KV events.");
  Gauge& traces = OneGauge("quire_traces", "Open Trace calls.");
  Family<Gauge>& transfers =
      Gauges("quire_session_transfers", "Open Export and Import calls, by direction.");
  Gauge& exports = transfers.Add({{"direction", "export"}});
  Gauge& imports = transfers.Add({{"direction", "import"}});
  Family<Gauge>& field_calls =
      Gauges("quire_field_calls", "Open GetTokenizer and FlushCache calls.");
  Gauge& tokenizer_calls = field_calls.Add({{"method", "GetTokenizer"}});
  Gauge& flush_calls = field_calls.Add({{"method", "FlushCache"}});
  Counter& paused = OneCounter("quire_slow_reader_paused_total",
                               "Times that a request was paused because of a slow reader.");
  Counter& shed = OneCounter("quire_slow_reader_shed_total",
                             "Streams ended because their reader was too slow.");
  Family<Counter>& rejected =
      Counters("quire_requests_rejected_total", "Refused requests, by gRPC code.");
  Family<Counter>& handled =
      Counters("quire_grpc_server_handled_total", "Ended calls, by method and gRPC code.");
  Family<Histogram>& handling =
      Histograms("quire_grpc_server_handling_seconds", "Duration of ended calls, by method.");
  Gauge& SessionStreams(const std::string& method) {
    const std::string_view name = std::string_view(method).substr(method.rfind('/') + 1);
    if (name == "Watch") return watches;
    if (name == "Trace") return traces;
    if (name == "GetTokenizer") return tokenizer_calls;
    if (name == "FlushCache") return flush_calls;
    if (name == "Export") return exports;
    if (name == "Import") return imports;
    return kv_subscribers;
  }
  Counter& Rejections(int grpc_code) {
    Counter*& counter = rejected_by_code[grpc_code];
    if (counter == nullptr) counter = &rejected.Add({{"code", CodeName(grpc_code)}});
    return *counter;
  }
  std::mutex mutex;
  std::map<int, Counter*> rejected_by_code;
  std::map<std::pair<std::string, int>, Counter*> handled_by_call;
  std::map<std::string, Histogram*> handling_by_method;

  // Start and process.
  Family<Gauge>& server_state =
      Gauges("quire_server_state", "1 for the state of the server, 0 for the others.");
  Family<Gauge>& startup =
      Gauges("quire_startup_phase_seconds", "Duration of the server's start, by phase.");
  Family<Gauge>& memory =
      Gauges("quire_memory_plan_bytes", "Planned memory of each rank, by part.");
  Family<Gauge>& worker_seconds =
      Gauges("quire_worker_start_seconds", "Duration of a worker's start, by phase.");
  Family<Gauge>& worker_memory =
      Gauges("quire_worker_memory_bytes", "Memory of a worker after its start, by part.");
  Family<Counter>& sampled_steps =
      Counters("quire_sampled_steps_total", "Steps whose device time was measured by parts.");
  Family<Counter>& sampled_seconds =
      Counters("quire_sampled_step_seconds_total", "Device time of the sampled steps, by part.");
  Family<Gauge>& graph_nodes = Gauges("quire_cuda_graph_nodes", "Nodes of a captured step.");
  Family<Gauge>& graph_seconds =
      Gauges("quire_cuda_graph_capture_seconds", "Time to capture a step.");
  Family<Gauge>& graph_bytes =
      Gauges("quire_cuda_graph_bytes", "Device memory of a captured step.");
  Family<Counter>& graph_replays =
      Counters("quire_cuda_graph_replays_total", "Steps replayed from a capture.");
  Family<Gauge>& graph_padding = Gauges("quire_cuda_graph_padded_ratio",
                                        "Fraction of replayed rows that are padding, 0 to 1.");
  Family<Gauge>& kv_info =
      Gauges("quire_kv_cache_info", "Always 1; the labels describe the KV cache.");
  // Gateways look for adapters in this metric; its value is the time of the scrape, as in vLLM.
  Gauge& lora_info =
      Gauges("vllm:lora_requests_info", "Time of the scrape; no LoRA adapters are supported.")
          .Add({{"max_lora", "0"}, {"running_lora_adapters", ""}, {"waiting_lora_adapters", ""}});
  Counter& log_dropped =
      OneCounter("quire_log_dropped_total", "Log events that could not be written.");
  Gauge& resident = ProcessGauge("process_resident_memory_bytes", "Resident memory.");
  Gauge& open_fds = ProcessGauge("process_open_fds", "Open file descriptors.");
  Gauge& max_fds = ProcessGauge("process_max_fds", "Limit of open file descriptors.");
  Gauge& start_time =
      ProcessGauge("process_start_time_seconds", "Start of the process, seconds since 1970.");
  Counter& cpu_seconds = prometheus::BuildCounter()
                             .Name("process_cpu_seconds_total")
                             .Help("User and system CPU time.")
                             .Register(registry)
                             .Add({});
  std::mutex scrape_mutex;  // because RaiseTo reads, then writes
};

ServerMetrics::ServerMetrics(const std::string& model_name)
    : state_(std::make_unique<State>(model_name)) {
  State& state = *state_;
  auto& finished = state.Counters("quire_requests_finished_total", "Accepted requests that ended.");
  auto& success = state.Counters("vllm:request_success_total", "Accepted requests that ended.");
  for (const FinishReason reason : kReasons) {
    const auto index = static_cast<size_t>(reason);
    state.finished[index] = &finished.Add({{"reason", Name(reason)}});
    state.vllm_success[index] = &success.Add({{"finished_reason", FieldWord(reason)}});
  }
  // Present from the start, so that the first refusal is an increase. The usual codes:
  // INVALID_ARGUMENT, RESOURCE_EXHAUSTED and UNAVAILABLE.
  for (const int code : {3, 8, 14}) state.Rejections(code);
  // vLLM's dashboards call a model down that is not awake. This server never sleeps.
  auto& sleep = state.Gauges("vllm:engine_sleep_state", "1 for the state of the engine.");
  sleep.Add({{"sleep_state", "awake"}}).Set(1);
  sleep.Add({{"sleep_state", "weights_offloaded"}}).Set(0);
  sleep.Add({{"sleep_state", "discard_all"}}).Set(0);
  state.start_time.Set(SecondsSince1970());
  const BuildFacts& build = ThisBuild();
  state.Gauges("quire_build_info", "Always 1; the labels describe the build.")
      .Add({{"version", build.version},
            {"commit", build.commit},
            {"compiler", build.compiler},
            {"cuda", build.cuda},
            {"build_type", build.build_type}})
      .Set(1);
}

ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::RequestFinished(const FinishEvent& event, int32_t max_tokens) {
  State& state = *state_;
  const auto index = static_cast<size_t>(event.reason);
  if (index >= kNumReasons || state.finished[index] == nullptr) return;
  state.finished[index]->Increment();
  state.vllm_success[index]->Increment();
  if (event.reason == FinishReason::kNumeric) state.corrupted.Increment();

  const Usage& usage = event.usage;
  state.prompt_length.Observe(usage.prompt_tokens);
  state.output_length.Observe(usage.completion_tokens);
  state.max_tokens.Observe(max_tokens);
  state.num_outputs.Observe(1);

  const RequestTimings& at = event.timings;
  state.cache.Found(event.residency,
                    at.first_token_ns == 0 ? 0 : Seconds(at.arrival_ns, at.first_token_ns));
  state.request_time.Observe(Seconds(at.arrival_ns, at.finished_ns));
  if (at.admitted_ns == 0) return;
  state.computed_length.Observe(usage.prompt_tokens - usage.cached_tokens);
  state.queue_time.Observe(Seconds(at.arrival_ns, at.admitted_ns));
  if (at.first_token_ns == 0) return;
  const double first_token = Seconds(at.arrival_ns, at.first_token_ns);
  state.first_token.Observe(first_token);
  if (at.predicted_ttft_ns > 0) {
    const double late = first_token - static_cast<double>(at.predicted_ttft_ns) * 1e-9;
    (late < 0 ? state.came_early : state.came_late).Observe(std::abs(late));
  }
  state.prefill_time.Observe(Seconds(at.admitted_ns, at.first_token_ns));
  state.inference_time.Observe(Seconds(at.admitted_ns, at.last_token_ns));
  const double decode = Seconds(at.first_token_ns, at.last_token_ns);
  state.decode_time.Observe(decode);
  if (usage.completion_tokens > 1) state.per_token.Observe(decode / (usage.completion_tokens - 1));
}

void ServerMetrics::RequestRejected(int grpc_code) {
  const std::lock_guard lock(state_->mutex);
  state_->Rejections(grpc_code).Increment();
}

void ServerMetrics::InterTokenLatency(double seconds) {
  state_->inter_token.Observe(seconds);
  state_->live.inter_token.Observe(seconds);
}

void ServerMetrics::FirstToken(double seconds) { state_->live.first_token.Observe(seconds); }

void ServerMetrics::RpcFinished(const std::string& method, int grpc_code, double seconds) {
  const std::lock_guard lock(state_->mutex);
  Counter*& counter = state_->handled_by_call[{method, grpc_code}];
  if (counter == nullptr) {
    counter = &state_->handled.Add({{"method", method}, {"code", CodeName(grpc_code)}});
  }
  counter->Increment();
  Histogram*& histogram = state_->handling_by_method[method];
  if (histogram == nullptr) {
    histogram = &state_->handling.Add({{"method", method}}, RequestBuckets());
  }
  histogram->Observe(seconds);
}

void ServerMetrics::ConnectionRejected() { state_->connections_rejected.Increment(); }
void ServerMetrics::StreamOpened() { state_->streams.Increment(); }
void ServerMetrics::StreamClosed() { state_->streams.Decrement(); }
void ServerMetrics::SessionStreamOpened(const std::string& method) {
  state_->SessionStreams(method).Increment();
}
void ServerMetrics::SessionStreamClosed(const std::string& method) {
  state_->SessionStreams(method).Decrement();
}
void ServerMetrics::StreamPaused() { state_->paused.Increment(); }
void ServerMetrics::StreamShed() { state_->shed.Increment(); }
void ServerMetrics::CancelToEnd(double seconds) { state_->cancel_to_end.Observe(seconds); }

void ServerMetrics::StartupPhase(const std::string& phase, double seconds) {
  state_->startup.Add({{"phase", phase}}).Set(seconds);
}

void ServerMetrics::MemoryPlanned(const MemoryPlan& plan) {
  for (const MemoryPlan::Part& part : plan.parts) {
    state_->memory.Add({{"part", part.name}}).Set(static_cast<double>(part.bytes));
  }
  state_->kv_info
      .Add({{"block_size", std::to_string(plan.block_size)},
            {"num_gpu_blocks", std::to_string(plan.num_blocks)}})
      .Set(1);
}

void ServerMetrics::WorkersStarted(const WorkerReport& report) {
  State& state = *state_;
  for (const auto& [phase, seconds] : report.seconds) {
    state.worker_seconds.Add({{"phase", phase}}).Set(seconds);
  }
  for (const auto& [part, bytes] : report.memory) {
    state.worker_memory.Add({{"part", part}}).Set(static_cast<double>(bytes));
  }
  for (const WorkerReport::Graph& graph : report.graphs) {
    const Labels size = {{"size", std::to_string(graph.size)}};
    state.graph_nodes.Add(size).Set(graph.nodes);
    state.graph_seconds.Add(size).Set(graph.capture_ms * 1e-3);
    state.graph_bytes.Add(size).Set(static_cast<double>(graph.bytes));
  }
}

void ServerMetrics::State::RefreshEngine(const EngineStats& stats) {
  const SchedulerLoad& load = stats.load;
  running.Set(load.running);
  waiting.Set(load.waiting);
  waiting_tokens.Set(static_cast<double>(load.waiting_tokens));
  live_tokens.Set(static_cast<double>(load.tokens_in_flight));
  kv_blocks.Set(load.total_blocks);
  kv_blocks_free.Set(load.free_blocks);
  const int32_t used = load.total_blocks - load.free_blocks;
  kv_usage.Set(load.total_blocks == 0 ? 0 : static_cast<double>(used) / load.total_blocks);
  step_tokens.Set(static_cast<double>(stats.last_step_tokens));
  step_seconds.Set(static_cast<double>(stats.last_step_ns) * 1e-9);
  prompt_budget.Set(load.prompt_budget);
  cost_error.Set(load.step_cost_error);
  const int64_t since_ns = std::max(stats.last_retired_ns, stats.work_since_ns);
  step_age.Set(stats.work_waiting ? Seconds(since_ns, SteadyNowNs()) : 0);
  fault.Set(stats.fault.empty() ? 0 : 1);
  recovering.Set(stats.recovering ? 1 : 0);
  RaiseTo(recoveries, static_cast<double>(stats.recoveries));
  RaiseTo(rank_mismatches, static_cast<double>(stats.rank_mismatches));
  RaiseTo(steps, static_cast<double>(stats.steps));
  RaiseStepSizes(stats.step_sizes);
  RaiseTo(prompt_tokens, static_cast<double>(stats.prompt_tokens));
  RaiseTo(generated_tokens, static_cast<double>(stats.generated_tokens));
  RaiseTo(preemptions, static_cast<double>(stats.preemptions));
  RaiseTo(guessed_tokens, static_cast<double>(stats.guessed_tokens));
  RaiseTo(accepted_guesses, static_cast<double>(stats.accepted_guesses));
  RaiseTo(deadline_refusals, static_cast<double>(stats.deadline_refusals));
  RaiseSampled(stats.sampled);
  cache.Refresh(stats);
  guides.Refresh(stats.masks);
  for (const GraphUse& graph : stats.graphs) {
    const Labels size = {{"size", std::to_string(graph.size)}};
    RaiseTo(graph_replays.Add(size), static_cast<double>(graph.replays));
    graph_padding.Add(size).Set(graph.padded_share());
  }
}

void ServerMetrics::State::RaiseSampled(const std::vector<SampledSteps>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string label = std::to_string(rank);
    RaiseTo(sampled_steps.Add({{"rank", label}}), static_cast<double>(ranks[rank].steps));
    for (int i = 0; i < kNumStepParts; ++i) {
      const char* const part = Name(static_cast<StepPart>(i));
      RaiseTo(sampled_seconds.Add({{"rank", label}, {"part", part}}),
              static_cast<double>(ranks[rank].total[static_cast<size_t>(i)]) * 1e-9);
    }
  }
}

void ServerMetrics::State::RaiseStepSizes(const StepSizes& sizes) {
  std::vector<double> added(sizes.steps.size());
  for (size_t i = 0; i < added.size(); ++i) {
    added[i] = static_cast<double>(sizes.steps[i] - counted_sizes.steps[i]);
  }
  step_sizes.ObserveMultiple(added, static_cast<double>(sizes.tokens - counted_sizes.tokens));
  counted_sizes = sizes;
}

void ServerMetrics::State::RefreshProcess() {
  const ProcessStats process = ReadProcessStats();
  resident.Set(static_cast<double>(process.resident_bytes));
  open_fds.Set(process.open_fds);
  max_fds.Set(static_cast<double>(process.max_fds));
  RaiseTo(cpu_seconds, process.cpu_seconds);
  RaiseTo(log_dropped, static_cast<double>(LogDroppedTotal()));
  lora_info.Set(SecondsSince1970());
}

void ServerMetrics::ServerState(const std::string& name) {
  for (const char* state : {"loading", "ready", "recovering", "draining", "hung"}) {
    state_->server_state.Add({{"state", state}}).Set(name == state ? 1 : 0);
  }
}

ArchiveMetrics& ServerMetrics::archive() { return state_->archive; }

JobMetrics& ServerMetrics::jobs() { return state_->jobs; }
GpuMetrics& ServerMetrics::gpus() { return state_->gpus; }

TenantMetrics& ServerMetrics::tenants() { return state_->tenants; }
AuthMetrics& ServerMetrics::auth() { return state_->auth; }
OtlpMetrics& ServerMetrics::otlp() { return state_->otlp; }

TlsMetrics& ServerMetrics::tls() { return state_->tls; }
GuideMetrics& ServerMetrics::guides() { return state_->guides; }

MetricRegistry& ServerMetrics::registry() { return *state_; }

LiveFigures& ServerMetrics::live() { return state_->live; }

std::string ServerMetrics::Serialize(const EngineStats& stats) {
  const std::lock_guard lock(state_->scrape_mutex);
  state_->RefreshEngine(stats);
  state_->RefreshProcess();
  std::vector<prometheus::MetricFamily> families = state_->registry.Collect();
  const size_t own = families.size();
  for (const Alias& alias : kAliases) {
    for (size_t i = 0; i < own; ++i) {
      if (families[i].name != alias.name) continue;
      prometheus::MetricFamily copy = families[i];
      copy.name = alias.second;
      families.push_back(std::move(copy));
      break;
    }
  }
  for (prometheus::MetricFamily& family : families) {
    if (family.name.starts_with("vllm:")) LabelEngine(family);
  }
  return Exposition(families);
}

}  // namespace quire

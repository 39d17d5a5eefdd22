// The exposition: metrics under both names, vLLM's bucket edges, and docs/metrics.md compared with
// a scrape.
// Covers server/metrics/cache_metrics.cc
#include "server/metrics/metrics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/engine_setup.h"
#include "server/detach/detach_metrics.h"
#include "server/metrics/auth_metrics.h"
#include "server/metrics/gpu_metrics.h"
#include "server/metrics/tenant_metrics.h"
#include "server/metrics/tls_metrics.h"

namespace quire {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

FinishEvent FinishedRequest(FinishReason reason) {
  FinishEvent event;
  event.reason = reason;
  event.usage = {.prompt_tokens = 20, .completion_tokens = 11, .cached_tokens = 16};
  event.timings = {.arrival_ns = 1 * kSecond,
                   .admitted_ns = 2 * kSecond,
                   .first_token_ns = 4 * kSecond,
                   .last_token_ns = 9 * kSecond,
                   .finished_ns = 10 * kSecond};
  return event;
}

// Success if the page contains `text`; the failure names the text, not the page of 60 KB.
testing::AssertionResult Shows(const std::string& page, const std::string& text) {
  if (page.find(text) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "not on the page: " << text;
}

// Of a GPU whose driver gives every figure; all are 1.
GpuFacts WholeFacts() {
  GpuFacts facts{.uuid = "GPU-1", .index = "0"};
  for (GpuFacts::Figure* figure :
       {&facts.busy, &facts.sm_busy, &facts.tensor_busy, &facts.memory_busy,
        &facts.memory_used_bytes, &facts.memory_total_bytes, &facts.power_watts,
        &facts.power_limit_watts, &facts.energy_joules, &facts.temperature_celsius,
        &facts.sm_clock_hertz, &facts.sm_clock_max_hertz, &facts.memory_clock_hertz,
        &facts.ecc_corrected, &facts.ecc_uncorrected, &facts.link_sent_bytes,
        &facts.link_received_bytes}) {
    *figure = 1;
  }
  facts.limits.fill(1);
  facts.link_errors.fill(1);
  return facts;
}

// Calls every method that creates or changes a metric.
void MoveEverything(ServerMetrics& metrics) {
  metrics.RequestFinished(FinishedRequest(FinishReason::kEos), 100);
  metrics.RequestRejected(14);
  metrics.InterTokenLatency(0.004);
  metrics.RpcFinished("Generate", 0, 0.5);
  metrics.StreamOpened();
  metrics.SessionStreamOpened("Watch");
  metrics.StreamPaused();
  metrics.StreamShed();
  metrics.CancelToEnd(0.002);
  metrics.StartupPhase("ready", 0.4);
  metrics.MemoryPlanned({.parts = {{"weights", 1000}}, .num_blocks = 7, .block_size = 16});
  metrics.WorkersStarted({.description = "",
                          .memory = {{"measured", 12}},
                          .seconds = {{"load", 0.5}},
                          .graphs = {{.size = 8, .nodes = 3, .capture_ms = 2, .bytes = 4}}});
  metrics.ServerState("ready");
  metrics.gpus().Set(WholeFacts());
  metrics.auth().Refused("missing");
  metrics.tenants().Set({{.tenant = 1}}, {"acme"});
  metrics.tls().CertificateInUse(1.9e9);
  metrics.tls().SetHandshakes(3, {{"untrusted", 1}});
}

// name -> type, from the "# TYPE" lines.
std::map<std::string, std::string> Families(const std::string& scrape) {
  std::map<std::string, std::string> families;
  std::istringstream in(scrape);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string hash, keyword, name, type;
    words >> hash >> keyword >> name >> type;
    if (hash == "#" && keyword == "TYPE") families[name] = type;
  }
  return families;
}

// name -> type, from the tables: the first column's name and every vLLM name take the row's type.
std::map<std::string, std::string> Documented() {
  std::map<std::string, std::string> families;
  std::ifstream in(QUIRE_SOURCE_DIR "/docs/metrics.md");
  const std::regex row(R"(^\| `([a-z0-9_:]+)` \| ([a-z]+) \|(.*)$)");
  const std::regex alias("`(vllm:[a-z0-9_]+)`");
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) continue;
    families[match[1]] = match[2];
    const std::string rest = match[3];
    for (std::sregex_iterator it(rest.begin(), rest.end(), alias), end; it != end; ++it) {
      families[(*it)[1]] = match[2];
    }
  }
  return families;
}

TEST(MetricsTest, TheDocumentListsExactlyTheExportedMetrics) {
  ServerMetrics metrics("demo");
  MoveEverything(metrics);
  DetachMetrics detached(metrics.registry());
  detached.Attached(DetachMetrics::Attach::kResumed);
  const auto documented = Documented();
  const auto exported =
      Families(metrics.Serialize({.sampled = {{.steps = 1}}, .graphs = {{.size = 8}}}));
  for (const auto& [name, type] : exported) {
    EXPECT_TRUE(documented.contains(name)) << name << " is exported and not documented";
    EXPECT_EQ(documented.contains(name) ? documented.at(name) : type, type) << name;
  }
  for (const auto& [name, type] : documented) {
    EXPECT_TRUE(exported.contains(name)) << name << " is documented and not exported";
  }
}

TEST(MetricsTest, GaugesFollowTheEngine) {
  ServerMetrics metrics("demo");
  EngineStats stats;
  stats.load = {.running = 3,
                .waiting = 5,
                .waiting_tokens = 70,
                .free_blocks = 25,
                .total_blocks = 100,
                .tokens_in_flight = 60};
  const std::string scrape = metrics.Serialize(stats);
  for (const char* line : {"quire_requests_running{model_name=\"demo\"} 3\n",
                           "vllm:num_requests_running{model_name=\"demo\",engine=\"0\"} 3\n",
                           "vllm:num_requests_waiting{model_name=\"demo\",engine=\"0\"} 5\n",
                           "quire_waiting_prompt_tokens{model_name=\"demo\"} 70\n",
                           "vllm:kv_cache_usage_perc{model_name=\"demo\",engine=\"0\"} 0.75\n",
                           "vllm:gpu_cache_usage_perc{model_name=\"demo\",engine=\"0\"} 0.75\n",
                           "quire_running_tokens{model_name=\"demo\"} 60\n"}) {
    EXPECT_TRUE(Shows(scrape, line));
  }
}

TEST(MetricsTest, TheWorkersStartIsExported) {
  ServerMetrics metrics("demo");
  MoveEverything(metrics);
  EngineStats stats;
  stats.recovering = true;
  stats.recoveries = 2;
  stats.rank_mismatches = 3;
  stats.graphs = {{.size = 8, .replays = 10, .padded_rows = 20}};
  stats.sampled.resize(2);
  stats.sampled[1].Add(SumOf(std::vector<PartTime>{{StepPart::kIdle, 250'000'000},
                                                   {StepPart::kNorms, 500'000'000},
                                                   {StepPart::kIdle, 250'000'000}}),
                       /*rows=*/1, /*tokens=*/1);
  const std::string scrape = metrics.Serialize(stats);
  for (const char* line :
       {"quire_sampled_steps_total{model_name=\"demo\",rank=\"0\"} 0\n",
        "quire_sampled_steps_total{model_name=\"demo\",rank=\"1\"} 1\n",
        "quire_sampled_step_seconds_total{model_name=\"demo\",part=\"idle\",rank=\"1\"} 0.5\n",
        "quire_sampled_step_seconds_total{model_name=\"demo\",part=\"norms\",rank=\"1\"} 0.5\n",
        "quire_worker_start_seconds{model_name=\"demo\",phase=\"load\"} 0.5\n",
        "quire_worker_memory_bytes{model_name=\"demo\",part=\"measured\"} 12\n",
        "quire_cuda_graph_nodes{model_name=\"demo\",size=\"8\"} 3\n",
        "quire_cuda_graph_capture_seconds{model_name=\"demo\",size=\"8\"} 0.002\n",
        "quire_cuda_graph_bytes{model_name=\"demo\",size=\"8\"} 4\n",
        "quire_cuda_graph_replays_total{model_name=\"demo\",size=\"8\"} 10\n",
        "quire_cuda_graph_padded_ratio{model_name=\"demo\",size=\"8\"} 0.25\n",
        "quire_engine_recovering{model_name=\"demo\"} 1\n",
        "quire_engine_recoveries_total{model_name=\"demo\"} 2\n",
        "quire_rank_mismatches_total{model_name=\"demo\"} 3\n"}) {
    EXPECT_TRUE(Shows(scrape, line));
  }
}

TEST(MetricsTest, CountersFollowTheEnginesTotalsAndNeverFall) {
  ServerMetrics metrics("demo");
  EngineStats stats;
  stats.generated_tokens = 100;
  stats.preemptions = 2;
  metrics.Serialize(stats);
  stats.generated_tokens = 150;
  const std::string scrape = metrics.Serialize(stats);
  EXPECT_TRUE(Shows(scrape, "quire_generated_tokens_total{model_name=\"demo\"} 150\n"));
  EXPECT_TRUE(
      Shows(scrape, "vllm:generation_tokens_total{model_name=\"demo\",engine=\"0\"} 150\n"));
  EXPECT_TRUE(Shows(scrape, "vllm:num_preemptions_total{model_name=\"demo\",engine=\"0\"} 2\n"));
  stats.generated_tokens = 140;
  EXPECT_TRUE(Shows(metrics.Serialize(stats), "generated_tokens_total{model_name=\"demo\"} 150\n"));
}

TEST(MetricsTest, AFinishedRequestCountsInItsHistograms) {
  ServerMetrics metrics("demo");
  metrics.RequestFinished(FinishedRequest(FinishReason::kMaxTokens), 100);
  const std::string scrape = metrics.Serialize({});
  for (const char* line :
       {"vllm:time_to_first_token_seconds_sum{model_name=\"demo\",engine=\"0\"} 3\n",
        "vllm:e2e_request_latency_seconds_sum{model_name=\"demo\",engine=\"0\"} 9\n",
        "vllm:request_queue_time_seconds_sum{model_name=\"demo\",engine=\"0\"} 1\n",
        "vllm:request_prefill_time_seconds_sum{model_name=\"demo\",engine=\"0\"} 2\n",
        "vllm:request_decode_time_seconds_sum{model_name=\"demo\",engine=\"0\"} 5\n",
        "vllm:request_inference_time_seconds_sum{model_name=\"demo\",engine=\"0\"} 7\n",
        "vllm:request_time_per_output_token_seconds_sum{model_name=\"demo\",engine=\"0\"} 0.5\n",
        "vllm:request_prompt_tokens_sum{model_name=\"demo\",engine=\"0\"} 20\n",
        "vllm:request_generation_tokens_sum{model_name=\"demo\",engine=\"0\"} 11\n",
        "quire_requests_finished_total{model_name=\"demo\",reason=\"MAX_TOKENS\"} 1\n",
        "vllm:request_success_total{model_name=\"demo\",engine=\"0\",finished_reason=\"length\"} "
        "1\n",
        "vllm:request_success_total{model_name=\"demo\",engine=\"0\",finished_reason=\"stop\"} "
        "0\n"}) {
    EXPECT_TRUE(Shows(scrape, line));
  }
}

TEST(MetricsTest, TiersAndSessionsFollowTheEngine) {
  ServerMetrics metrics("demo");
  EngineStats stats;
  stats.load.restoring = 2;
  stats.prompt_tokens = 150;  // some of them once more after a preemption
  stats.cache = {.queried_tokens = 1000,
                 .device_tokens = 600,
                 .host_tokens = 300,
                 .computed_tokens = 100,
                 .evicted_blocks = 7,
                 .kept_lost = 3,
                 .cached_blocks = 9,
                 .host_pages_used = 5,
                 .host_pages_ready = 6,
                 .host_pages = 8,
                 .sessions = 4,
                 .session_tokens = 444,
                 .sessions_by_state = {0, 1, 0, 3}};
  stats.tiering.stored_bytes = 4096;
  stats.tiering.restores_late = 12;
  stats.tiering.stores_given_up = 13;
  stats.tiering.loaded_blocks = 2;
  stats.tiering.corrupt_pages = 1;
  stats.tiering.load_bytes_per_second = 5e9;
  const std::string scrape = metrics.Serialize(stats);
  for (const char* line :
       {"quire_prefix_cache_queried_tokens_total{model_name=\"demo\"} 1000\n",
        "vllm:prefix_cache_queries_total{model_name=\"demo\",engine=\"0\"} 1000\n",
        "quire_prefix_cache_hit_tokens_total{model_name=\"demo\",tier=\"device\"} 600\n",
        "quire_prefix_cache_hit_tokens_total{model_name=\"demo\",tier=\"host\"} 300\n",
        "vllm:prefix_cache_hits_total{model_name=\"demo\",engine=\"0\"} 600\n",
        "vllm:external_prefix_cache_queries_total{model_name=\"demo\",engine=\"0\"} 400\n",
        "vllm:external_prefix_cache_hits_total{model_name=\"demo\",engine=\"0\"} 300\n",
        "vllm:prompt_tokens_total{model_name=\"demo\",engine=\"0\"} 1000\n",
        "quire_prompt_tokens_total{model_name=\"demo\"} 150\n",
        "vllm:prompt_tokens_cached_total{model_name=\"demo\",engine=\"0\"} 900\n",
        "vllm:prompt_tokens_by_source_total{model_name=\"demo\",engine=\"0\",source=\"local_"
        "compute\"} 100\n",
        "source=\"local_cache_hit\"} 600\n",
        "source=\"external_kv_transfer\"} 300\n",
        "vllm:num_requests_waiting_by_reason{model_name=\"demo\",engine=\"0\",reason=\"deferred\"} "
        "2\n",
        "quire_kv_evicted_blocks_total{model_name=\"demo\"} 7\n",
        "quire_session_kv_lost_blocks_total{model_name=\"demo\"} 3\n",
        "quire_kv_blocks_cached{model_name=\"demo\"} 9\n",
        "quire_host_pages{model_name=\"demo\"} 8\n",
        "quire_host_pages_used{model_name=\"demo\"} 5\n",
        "quire_host_pages_ready{model_name=\"demo\"} 6\n",
        "quire_kv_restores_late_total{model_name=\"demo\"} 12\n",
        "quire_kv_stores_given_up_total{model_name=\"demo\"} 13\n",
        "quire_session_tokens{model_name=\"demo\"} 444\n",
        "quire_sessions{model_name=\"demo\",state=\"RESIDENT_IDLE\"} 1\n",
        "quire_sessions{model_name=\"demo\",state=\"HOST\"} 3\n",
        "quire_sessions{model_name=\"demo\",state=\"ACTIVE\"} 0\n",
        "quire_requests_restoring{model_name=\"demo\"} 2\n",
        "quire_kv_stored_bytes_total{model_name=\"demo\"} 4096\n",
        "vllm:kv_offload_store_bytes_total{model_name=\"demo\",engine=\"0\"} 4096\n",
        "quire_kv_loaded_blocks_total{model_name=\"demo\"} 2\n",
        "quire_kv_corrupt_pages_total{model_name=\"demo\"} 1\n",
        "quire_kv_copy_bytes_per_second{model_name=\"demo\",direction=\"load\"} 5000000000\n"}) {
    EXPECT_TRUE(Shows(scrape, line));
  }
}

TEST(MetricsTest, StepSizesBecomeAHistogramOfTheSameCounts) {
  ServerMetrics metrics("demo");
  EngineStats stats;
  stats.step_sizes.Add(1);
  stats.step_sizes.Add(8);
  metrics.Serialize(stats);
  stats.step_sizes.Add(9);
  stats.step_sizes.Add(100000);
  const std::string scrape = metrics.Serialize(stats);
  for (const char* line :
       {"quire_tokens_per_step_count{model_name=\"demo\"} 4\n",
        "quire_tokens_per_step_sum{model_name=\"demo\"} 100018\n",
        "quire_tokens_per_step_bucket{model_name=\"demo\",le=\"1\"} 1\n",
        "quire_tokens_per_step_bucket{model_name=\"demo\",le=\"8\"} 2\n",
        "quire_tokens_per_step_bucket{model_name=\"demo\",le=\"16384\"} 3\n",
        "vllm:iteration_tokens_total_bucket{model_name=\"demo\",engine=\"0\",le=\"16\"} 3\n"}) {
    EXPECT_TRUE(Shows(scrape, line));
  }
}

TEST(MetricsTest, ParametersOfARequestAreCounted) {
  ServerMetrics metrics("demo");
  metrics.RequestFinished(FinishedRequest(FinishReason::kEos), 77);
  metrics.CancelToEnd(0.5);
  const std::string scrape = metrics.Serialize({});
  for (const char* line :
       {"vllm:request_params_max_tokens_sum{model_name=\"demo\",engine=\"0\"} 77\n",
        "vllm:request_params_n_sum{model_name=\"demo\",engine=\"0\"} 1\n",
        "vllm:request_max_num_generation_tokens_sum{model_name=\"demo\",engine=\"0\"} 11\n",
        "vllm:lora_requests_info{model_name=\"demo\",engine=\"0\",max_lora=\"0\",",
        "quire_cancel_to_end_seconds_sum{model_name=\"demo\"} 0.5\n",
        "quire_cancel_to_free_seconds_sum{model_name=\"demo\"} 0.5\n"}) {
    EXPECT_TRUE(Shows(scrape, line));
  }
}

// vLLM's status board reads the state, and its alert on wrong numbers the other.
TEST(MetricsTest, TheEngineIsAwakeAndCorruptedRequestsAreCounted) {
  ServerMetrics metrics("demo");
  metrics.RequestFinished(FinishedRequest(FinishReason::kNumeric), 100);
  metrics.RequestFinished(FinishedRequest(FinishReason::kEos), 100);
  const std::string scrape = metrics.Serialize({});
  for (const char* line :
       {"vllm:engine_sleep_state{model_name=\"demo\",engine=\"0\",sleep_state=\"awake\"} 1\n",
        "sleep_state=\"weights_offloaded\"} 0\n", "sleep_state=\"discard_all\"} 0\n",
        "vllm:corrupted_requests_total{model_name=\"demo\",engine=\"0\"} 1\n",
        "vllm:request_prefill_kv_computed_tokens_sum{model_name=\"demo\",engine=\"0\"} 8\n"}) {
    EXPECT_TRUE(Shows(scrape, line));
  }
}

TEST(MetricsTest, TheResidencyOfARequestIsCounted) {
  ServerMetrics metrics("demo");
  FinishEvent event = FinishedRequest(FinishReason::kEos);
  metrics.RequestFinished(event, 100);
  event.residency = {.outcome = Residency::Outcome::kPartial,
                     .device_tokens = 16,
                     .host_tokens = 64,
                     .recomputed_tokens = 5,
                     .restore_ns = kSecond / 4};
  metrics.RequestFinished(event, 100);
  const std::string scrape = metrics.Serialize({});
  for (const char* line :
       {"quire_request_residency_total{model_name=\"demo\",outcome=\"NONE\"} 1\n",
        "quire_request_residency_total{model_name=\"demo\",outcome=\"PARTIAL\"} 1\n",
        "quire_request_residency_total{model_name=\"demo\",outcome=\"RESTORED\"} 0\n",
        "quire_session_recomputed_tokens_total{model_name=\"demo\"} 5\n",
        "quire_residency_time_to_first_token_seconds_count{model_name=\"demo\",outcome=\"PARTIAL\"}"
        " "
        "1\n",
        "quire_residency_time_to_first_token_seconds_count{model_name=\"demo\",outcome=\"DEVICE\"} "
        "0\n",
        "quire_kv_restore_seconds_count{model_name=\"demo\"} 1\n",
        "quire_kv_restore_seconds_sum{model_name=\"demo\"} 0.25\n"}) {
    EXPECT_TRUE(Shows(scrape, line));
  }
}

// A request that ended in the queue has no first token and must not lower the averages.
TEST(MetricsTest, ARequestThatNeverRanHasNoLatencies) {
  ServerMetrics metrics("demo");
  FinishEvent event = FinishedRequest(FinishReason::kDeadline);
  event.timings.admitted_ns = event.timings.first_token_ns = event.timings.last_token_ns = 0;
  event.usage.completion_tokens = 0;
  metrics.RequestFinished(event, 100);
  const std::string scrape = metrics.Serialize({});
  EXPECT_TRUE(Shows(scrape, "quire_time_to_first_token_seconds_count{model_name=\"demo\"} 0\n"));
  EXPECT_TRUE(Shows(scrape, "quire_request_queue_seconds_count{model_name=\"demo\"} 0\n"));
  EXPECT_TRUE(Shows(scrape, "quire_request_seconds_count{model_name=\"demo\"} 1\n"));
}

// Our edges must include those of vLLM's dashboards.
TEST(MetricsTest, BucketsContainTheEdgesOfVllm) {
  ServerMetrics metrics("demo");
  const std::string scrape = metrics.Serialize({});
  const std::map<std::string, std::vector<std::string>> edges = {
      {"time_to_first_token_seconds",
       {"0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.25", "0.5", "0.75",
        "1",     "2.5",   "5",    "7.5",  "10",   "20",   "40",   "80",  "160",  "640", "2560"}},
      {"inter_token_latency_seconds",
       {"0.01", "0.025", "0.05", "0.075", "0.1", "0.15", "0.2", "0.3", "0.4", "0.5", "0.75", "1",
        "2.5", "5", "7.5", "10", "20", "40", "80"}},
      {"e2e_request_latency_seconds",
       {"0.3", "0.5", "0.8", "1",  "1.5", "2",   "2.5", "5",   "10",   "15",  "20",
        "30",  "40",  "50",  "60", "120", "240", "480", "960", "1920", "7680"}},
      {"request_prompt_tokens",
       {"1", "2", "5", "10", "20", "50", "100", "200", "500", "1000", "2000", "5000", "10000"}},
  };
  for (const auto& [name, wanted] : edges) {
    for (const std::string& edge : wanted) {
      EXPECT_TRUE(Shows(scrape, "vllm:" + name + "_bucket{model_name=\"demo\",engine=\"0\",le=\"" +
                                    edge + "\"}"));
    }
  }
}

TEST(MetricsTest, CallsAndRejectionsAreLabelledByGrpcCode) {
  ServerMetrics metrics("demo");
  metrics.RequestRejected(3);
  metrics.RequestRejected(14);
  metrics.RequestRejected(14);
  metrics.RpcFinished("Tokenize", 0, 0.25);
  metrics.RpcFinished("Tokenize", 99, 0.25);
  const std::string scrape = metrics.Serialize({});
  EXPECT_TRUE(Shows(
      scrape, "quire_requests_rejected_total{model_name=\"demo\",code=\"INVALID_ARGUMENT\"} 1\n"));
  EXPECT_TRUE(
      Shows(scrape, "quire_requests_rejected_total{model_name=\"demo\",code=\"UNAVAILABLE\"} 2\n"));
  EXPECT_TRUE(Shows(scrape, "code=\"OK\",method=\"Tokenize\"} 1\n"));
  EXPECT_TRUE(Shows(scrape, "code=\"UNKNOWN\""));
  EXPECT_TRUE(Shows(
      scrape,
      "quire_grpc_server_handling_seconds_sum{model_name=\"demo\",method=\"Tokenize\"} 0.5\n"));
}

TEST(MetricsTest, OneStateOfTheServerIsSet) {
  ServerMetrics metrics("demo");
  metrics.ServerState("loading");
  metrics.ServerState("draining");
  const std::string scrape = metrics.Serialize({});
  EXPECT_TRUE(Shows(scrape, "quire_server_state{model_name=\"demo\",state=\"draining\"} 1\n"));
  for (const char* state : {"loading", "ready", "recovering", "hung"}) {
    EXPECT_TRUE(Shows(scrape, std::string("quire_server_state{model_name=\"demo\",state=\"") +
                                  state + "\"} 0\n"));
  }
}

// Prometheus sees an increase only from a sample that was there before.
TEST(MetricsTest, RefusalsAreThereBeforeTheFirst) {
  const std::string scrape = ServerMetrics("demo").Serialize({});
  EXPECT_TRUE(
      Shows(scrape, "quire_requests_rejected_total{model_name=\"demo\",code=\"UNAVAILABLE\"} 0\n"));
}

// The age grows only while work waits, from the last step or the arrival of the work.
TEST(MetricsTest, StepAgeCountsOnlyWhileWorkWaits) {
  ServerMetrics metrics("demo");
  EngineStats stats;
  stats.last_retired_ns = SteadyNowNs() - 100 * kSecond;
  EXPECT_TRUE(Shows(metrics.Serialize(stats), "quire_step_age_seconds{model_name=\"demo\"} 0\n"));
  stats.work_waiting = true;
  EXPECT_TRUE(Shows(metrics.Serialize(stats), "quire_step_age_seconds{model_name=\"demo\"} 100."));
  stats.work_since_ns = SteadyNowNs() - 50 * kSecond;
  EXPECT_TRUE(Shows(metrics.Serialize(stats), "quire_step_age_seconds{model_name=\"demo\"} 50."));
}

// The operator chooses the model name: quotes and newlines must not break the page.
TEST(MetricsTest, ModelNamesAreEscaped) {
  ServerMetrics metrics("a\"b\nc");
  const std::string scrape = metrics.Serialize({});
  EXPECT_TRUE(Shows(scrape, "{model_name=\"a\\\"b\\nc\"}"));
  EXPECT_FALSE(Shows(scrape, "a\"b\nc"));
}

TEST(MetricsTest, ScrapesAndEventsMayOverlap) {
  ServerMetrics metrics("demo");
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        metrics.RequestFinished(FinishedRequest(FinishReason::kEos), 100);
        metrics.RequestRejected(t);
        metrics.InterTokenLatency(0.001);
      }
    });
  }
  for (int i = 0; i < 20; ++i) metrics.Serialize({});
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(
      Shows(metrics.Serialize({}),
            "vllm:e2e_request_latency_seconds_count{model_name=\"demo\",engine=\"0\"} 600\n"));
}

}  // namespace
}  // namespace quire

// Tests of the reports in other tools' formats: labels, key names and numbers, on a run made by
// hand whose figures summary_test.cc derives.
#include "clients/load/report/reports.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "clients/load/figures/verdict.h"
#include "tests/clients/load/made_runs.h"

namespace quire::load {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// With limits that three of its requests meet, and a cap on concurrency.
RunRecord LimitedRun() {
  RunRecord run = HandMadeRun();
  run.info.limits = {150, 100, 1050};
  run.info.max_concurrency = 32;
  return run;
}

// One request that succeeded, and nothing else.
RunRecord GoodRun() {
  RunRecord run = HandMadeRun();
  run.requests = {MadeRequest({0, 0, 100, 500, 501}, 10, 5)};
  return run;
}

std::string VllmTextOf(const RunRecord& run) { return VllmText(run, Summarize(run)); }
Json VllmJsonOf(const RunRecord& run) { return Json::parse(VllmJson(run, Summarize(run))); }
Json SglangOf(const RunRecord& run) { return Json::parse(SglangJsonLine(run, Summarize(run))); }
Json PerfOf(const RunRecord& run) { return Json::parse(PerfJsonLine(run, Summarize(run))); }
std::string LoadgenOf(const RunRecord& run) { return LoadgenSummary(run, Summarize(run)); }

std::set<std::string> KeysOf(const Json& json) {
  std::set<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  return keys;
}

// Printed by Python's format() with that benchmark's format strings, "{:<40} {:<10.2f}" and
// "{s:{c}^50}", from numpy's figures of the same lists.
TEST(VllmReportTest, TextIsTheBlockItsParsersKnow) {
  EXPECT_EQ(VllmTextOf(LimitedRun()),
            "============ Serving Benchmark Result ============\n"
            "Successful requests:                     5         \n"
            "Failed requests:                         2         \n"
            "Maximum request concurrency:             32        \n"
            "Request rate configured (RPS):           10.00     \n"
            "Benchmark duration (s):                  1.50      \n"
            "Total input tokens:                      107       \n"
            "Total generated tokens:                  34        \n"
            "Request throughput (req/s):              3.33      \n"
            "Request goodput (req/s):                 2.00      \n"
            "Output token throughput (tok/s):         22.64     \n"
            "Peak output token throughput (tok/s):    30.00     \n"
            "Peak concurrent requests:                4.00      \n"
            "Total token throughput (tok/s):          93.87     \n"
            "---------------Time to First Token----------------\n"
            "Mean TTFT (ms):                          187.50    \n"
            "Median TTFT (ms):                        150.00    \n"
            "P50 TTFT (ms):                           150.00    \n"
            "P90 TTFT (ms):                           340.00    \n"
            "P95 TTFT (ms):                           370.00    \n"
            "P99 TTFT (ms):                           394.00    \n"
            "-----Time per Output Token (excl. 1st token)------\n"
            "Mean TPOT (ms):                          83.33     \n"
            "Median TPOT (ms):                        100.00    \n"
            "P50 TPOT (ms):                           100.00    \n"
            "P90 TPOT (ms):                           100.00    \n"
            "P95 TPOT (ms):                           100.00    \n"
            "P99 TPOT (ms):                           100.00    \n"
            "---------------Inter-token Latency----------------\n"
            "Mean ITL (ms):                           50.00     \n"
            "Median ITL (ms):                         50.00     \n"
            "P50 ITL (ms):                            50.00     \n"
            "P90 ITL (ms):                            50.00     \n"
            "P95 ITL (ms):                            50.00     \n"
            "P99 ITL (ms):                            50.00     \n"
            "----------------End-to-end Latency----------------\n"
            "Mean E2EL (ms):                          598.00    \n"
            "Median E2EL (ms):                        500.00    \n"
            "P50 E2EL (ms):                           500.00    \n"
            "P90 E2EL (ms):                           1140.00   \n"
            "P95 E2EL (ms):                           1170.00   \n"
            "P99 E2EL (ms):                           1194.00   \n"
            "---------------Client-side Queueing---------------\n"
            "Mean Client Queue Time (ms):             0.80      \n"
            "Median Client Queue Time (ms):           0.00      \n"
            "P50 Client Queue Time (ms):              0.00      \n"
            "P90 Client Queue Time (ms):              2.20      \n"
            "P95 Client Queue Time (ms):              2.60      \n"
            "P99 Client Queue Time (ms):              2.92      \n"
            "--------Queue-inclusive End-to-end Latency--------\n"
            "Mean E2EL incl. Client Queue (ms):       598.80    \n"
            "Median E2EL incl. Client Queue (ms):     500.00    \n"
            "P50 E2EL incl. Client Queue (ms):        500.00    \n"
            "P90 E2EL incl. Client Queue (ms):        1141.20   \n"
            "P95 E2EL incl. Client Queue (ms):        1170.60   \n"
            "P99 E2EL incl. Client Queue (ms):        1194.12   \n"
            "==================================================\n");
}

TEST(VllmReportTest, LinesOfUnsetOptionsAreLeftOut) {
  RunRecord run = HandMadeRun();
  run.info.request_rate = std::numeric_limits<double>::infinity();
  EXPECT_THAT(VllmTextOf(run), Not(HasSubstr("Maximum request concurrency:")));
  EXPECT_THAT(VllmTextOf(run), Not(HasSubstr("Request rate configured (RPS):")));
  EXPECT_THAT(VllmTextOf(run), Not(HasSubstr("Request goodput (req/s):")));
  EXPECT_THAT(VllmTextOf(run), Not(HasSubstr("Client Queue Time")));
}

TEST(VllmReportTest, SaysFirstThatARunIsNotToBeBelieved) {
  RunRecord run = HandMadeRun();
  run.health.invalid_because = "the client was the bottleneck: CPU 97 %";
  EXPECT_THAT(VllmTextOf(run),
              StartsWith("INVALID: The client was the bottleneck: CPU 97 %.\n==="));
  run.end = RunEnd::kServerLost;
  run.end_reason = "connection refused";
  EXPECT_THAT(VllmTextOf(run), HasSubstr("(server lost): connection refused. Requests planned: 9, "
                                         "completed: 5, cut off: 1, never sent: 1. "
                                         "Tokens received: 39, of completed requests: 34.\n"));
}

std::set<std::string> VllmKeys(std::initializer_list<const char*> metrics) {
  std::set<std::string> keys = {"date",
                                "endpoint_type",
                                "backend",
                                "label",
                                "model_id",
                                "tokenizer_id",
                                "num_prompts",
                                "request_rate",
                                "burstiness",
                                "max_concurrency",
                                "duration",
                                "completed",
                                "failed",
                                "total_input_tokens",
                                "total_output_tokens",
                                "request_throughput",
                                "request_goodput",
                                "output_throughput",
                                "total_token_throughput",
                                "max_output_tokens_per_s",
                                "max_concurrent_requests",
                                "rtfx"};
  for (const char* metric : metrics) {
    for (const char* figure : {"mean", "median", "std", "p50", "p90", "p95", "p99"}) {
      keys.insert(std::string(figure) + "_" + metric + "_ms");
    }
  }
  return keys;
}

TEST(VllmReportTest, JsonOfAGoodRunHasExactlyItsKeys) {
  RunRecord run = GoodRun();
  EXPECT_EQ(KeysOf(VllmJsonOf(run)), VllmKeys({"ttft", "tpot", "itl", "e2el"}));
  run.info.max_concurrency = 8;
  EXPECT_EQ(KeysOf(VllmJsonOf(run)), VllmKeys({"ttft", "tpot", "itl", "e2el", "client_queue_time",
                                               "e2el_including_client_queue"}));
  run.info.detailed = true;
  std::set<std::string> more = KeysOf(VllmJsonOf(run));
  for (const char* key : {"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times",
                          "queue_times", "generated_texts", "errors"}) {
    EXPECT_EQ(more.erase(key), 1u) << key;
  }
  EXPECT_EQ(more.size(), KeysOf(VllmJsonOf(GoodRun())).size() + 14);
}

TEST(VllmReportTest, JsonHoldsTheFigures) {
  const Json j = VllmJsonOf(LimitedRun());
  EXPECT_EQ(j["date"], "20261120-181500");
  EXPECT_EQ(j["model_id"], "tiny");
  EXPECT_EQ(j["num_prompts"], 9);
  EXPECT_EQ(j["request_rate"], 10.0);
  EXPECT_EQ(j["max_concurrency"], 32);
  EXPECT_EQ(j["completed"], 5);
  EXPECT_EQ(j["failed"], 2);  // one failed, one was cut off
  EXPECT_EQ(j["cancelled"], 1);
  EXPECT_EQ(j["total_input_tokens"], 107);
  EXPECT_EQ(j["total_output_tokens"], 34);
  EXPECT_DOUBLE_EQ(j["request_goodput"], 3 / 1.502);
  EXPECT_DOUBLE_EQ(j["mean_ttft_ms"], 187.5);
  EXPECT_NEAR(j["p99_e2el_ms"], 1194, 1e-9);
  EXPECT_NEAR(j["p99_e2el_including_client_queue_ms"], 1194.12, 1e-9);
  EXPECT_DOUBLE_EQ(j["p50_itl_ms"], 50);
}

TEST(VllmReportTest, AbsentLimitsRatesAndCapsAreTheOnesOfThatTool) {
  RunRecord run = HandMadeRun();
  run.info.request_rate = std::numeric_limits<double>::infinity();
  const Json j = VllmJsonOf(run);
  EXPECT_EQ(j["request_rate"], "inf");
  EXPECT_TRUE(j["request_goodput"].is_null());
  EXPECT_TRUE(j["max_concurrency"].is_null());
}

TEST(VllmReportTest, MarksPartialAndInvalidRuns) {
  EXPECT_FALSE(VllmJsonOf(HandMadeRun()).contains("partial"));
  RunRecord run = HandMadeRun();
  run.end = RunEnd::kInterrupted;
  EXPECT_THAT(VllmJsonOf(run)["partial"].get<std::string>(), HasSubstr("(interrupted)"));
  EXPECT_EQ(VllmJsonOf(run)["received_output_tokens"], 39);
  EXPECT_FALSE(VllmJsonOf(run).contains("invalid"));
  run.requests[1].sequence_broken = true;
  EXPECT_THAT(VllmJsonOf(run)["invalid"].get<std::string>(), HasSubstr("repeated tokens: 1"));
}

TEST(VllmReportTest, MetadataStandsBesideButNeverReplacesAFigure) {
  RunRecord run = HandMadeRun();
  run.info.metadata = {{"gpu", "H200"}, {"duration", "long"}, {"odd", "\xff\"\n"}};
  const Json j = VllmJsonOf(run);
  EXPECT_EQ(j["gpu"], "H200");
  EXPECT_DOUBLE_EQ(j["duration"], 1.502);
  EXPECT_EQ(j["metadata_duration"], "long");
  EXPECT_EQ(j["odd"], "\xEF\xBF\xBD\"\n");
}

TEST(VllmReportTest, DetailedListsHaveAnEntryForEachRequestThatWasSent) {
  RunRecord run = HandMadeRun();
  run.info.detailed = true;
  run.requests[1].gap_seconds = {0.1f, 0.25f};
  run.requests[1].text = "four \xe2\x82 words";  // cut inside a character
  const Json j = VllmJsonOf(run);
  EXPECT_THAT(j["input_lens"], ElementsAre(10, 20, 30, 40, 50, 60, 7, 8));
  EXPECT_THAT(j["output_lens"], ElementsAre(5, 1, 11, 17, 0, 0, 0, 0));
  EXPECT_THAT(j["ttfts"], ElementsAre(0.1, 0.2, 0.05, 0.4, 0.0, 0.15, 0.0, 0.1));
  EXPECT_THAT(j["latencies"], ElementsAre(0.5, 0.2, 1.05, 1.2, 0, 0, 0.04, 0));
  EXPECT_THAT(j["start_times"], ElementsAre(0, 0.101, 0.203, 0.3, 0.402, 0.5, 0.6, 0.7));
  EXPECT_THAT(j["queue_times"], ElementsAre(0, 0.001, 0.003, 0, 0.002, 0, 0, 0));
  EXPECT_FLOAT_EQ(j["itls"][0][1], 0.25);
  EXPECT_EQ(j["itls"].size(), 8u);
  EXPECT_EQ(j["errors"][0], "");
  EXPECT_EQ(j["errors"][4], "UNAVAILABLE: connection reset by the server");
  EXPECT_EQ(j["errors"][5], "cancelled");
  EXPECT_THAT(j["generated_texts"][0].get<std::string>(), StartsWith("four \xEF\xBF\xBD"));
}

TEST(SglangReportTest, IsOneLineWithTheKeysOfThatTool) {
  const RunRecord run = GoodRun();
  const std::string line = SglangJsonLine(run, Summarize(run));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  std::set<std::string> keys = {"tag",
                                "backend",
                                "dataset_name",
                                "request_rate",
                                "max_concurrency",
                                "sharegpt_output_len",
                                "random_input_len",
                                "random_output_len",
                                "random_range_ratio",
                                "server_info",
                                "duration",
                                "completed",
                                "total_input_tokens",
                                "total_input_text_tokens",
                                "total_input_vision_tokens",
                                "total_output_tokens",
                                "total_output_tokens_retokenized",
                                "request_throughput",
                                "input_throughput",
                                "output_throughput",
                                "output_throughput_retokenized",
                                "total_throughput",
                                "total_throughput_retokenized",
                                "p90_e2e_latency_ms",
                                "p95_itl_ms",
                                "max_itl_ms",
                                "concurrency",
                                "accept_length"};
  for (const char* metric : {"e2e_latency", "ttft", "tpot", "itl"}) {
    for (const char* figure : {"mean", "median", "std", "p99"}) {
      keys.insert(std::string(figure) + "_" + metric + "_ms");
    }
  }
  EXPECT_EQ(KeysOf(Json::parse(line)), keys);
}

TEST(SglangReportTest, HoldsTheFigures) {
  const Json j = SglangOf(LimitedRun());
  EXPECT_DOUBLE_EQ(j["input_throughput"], 107 / 1.502);
  EXPECT_DOUBLE_EQ(j["output_throughput"], 34 / 1.502);
  EXPECT_DOUBLE_EQ(j["concurrency"], 2.99 / 1.502);
  EXPECT_NEAR(j["p99_e2e_latency_ms"], 1194, 1e-9);
  EXPECT_NEAR(j["p90_e2e_latency_ms"], 1140, 1e-9);
  EXPECT_DOUBLE_EQ(j["max_itl_ms"], 50);
  EXPECT_FALSE(j.contains("errors"));
  RunRecord detailed = LimitedRun();
  detailed.info.detailed = true;
  EXPECT_THAT(SglangOf(detailed)["output_lens"], ElementsAre(5, 1, 11, 17, 0, 0, 0, 0));
}

TEST(LoadgenReportTest, SummaryHasItsLabelsAndNanoseconds) {
  const std::string text = LoadgenOf(LimitedRun());
  EXPECT_THAT(text, StartsWith("unofficial = true\n"));
  for (const char* line :
       {"MLPerf Results Summary\n", "SUT name : quire 0.1.0 cpu\n", "Scenario : Server\n",
        "Mode     : PerformanceOnly\n", "Completed samples per second    : 3.33\n",
        "Completed tokens per second: 22.64\n", "Result is : INVALID\n",
        "  Performance constraints satisfied : NO\n", "  Min duration satisfied : NO\n",
        "  Min queries satisfied : NO\n", "Recommendations:\n",
        "Scheduled samples per second : 10.00\n",
        // Latencies count from the planned time: [40, 201, 500, 1053, 1200] ms.
        "Min latency (ns)                : 40000000\n",
        "Max latency (ns)                : 1200000000\n",
        "Mean latency (ns)               : 598800000\n",
        "50.00 percentile latency (ns)   : 500000000\n",
        "97.00 percentile latency (ns)   : 1182360000\n",
        "99.90 percentile latency (ns)   : 1199412000\n",
        "Completed tokens per second                 : 22.64\n",
        "Min First Token latency (ns)                : 53000000\n",
        "Mean First Token latency (ns)               : 188500000\n",
        "99.00 percentile first token latency (ns)   : 394030000\n",
        "Max Time to Output Token (ns)                : 100000000\n",
        "50.00 percentile time to output token (ns)   : 100000000\n", "Test Parameters Used\n",
        "target_qps : 10\n", "ttft_latency (ns): 150000000\n", "schedule_rng_seed : 7\n",
        "2 ERRORS encountered. See detailed log.\n"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line)) << line;
  }
}

TEST(LoadgenReportTest, ScenarioFollowsTheArrivals) {
  RunRecord run = HandMadeRun();
  run.info.request_rate = std::numeric_limits<double>::infinity();
  EXPECT_THAT(LoadgenOf(run), HasSubstr("Scenario : Offline\n"));
  EXPECT_THAT(LoadgenOf(run), HasSubstr("\nTokens per second: 22.64\n"));
  EXPECT_THAT(LoadgenOf(run), Not(HasSubstr("Performance constraints")));
  run.info.max_concurrency = 1;
  EXPECT_THAT(LoadgenOf(run), HasSubstr("Scenario : SingleStream\n"));
  EXPECT_THAT(LoadgenOf(run), HasSubstr("\n90th percentile latency (ns) : 1141200000\n"));
}

// LoadGen itself demands 600 s and 100 queries.
TEST(LoadgenReportTest, ALongRunWithinItsLimitsIsValid) {
  RunRecord run = GoodRun();
  run.info.limits = {150, 100, 0};
  run.requests.resize(100, run.requests[0]);
  run.duration_ns = 600'000'000'000;
  EXPECT_THAT(LoadgenOf(run), HasSubstr("Result is : VALID\n"));
  EXPECT_THAT(LoadgenOf(run), Not(HasSubstr("Recommendations")));
  EXPECT_THAT(LoadgenOf(run), HasSubstr("No errors encountered during test.\n"));
  run.info.limits.ttft_ms = 99;
  EXPECT_THAT(LoadgenOf(run), HasSubstr("Result is : INVALID\n"));
}

TEST(LoadgenReportTest, DetailLinesAreJsonAfterTheirMark) {
  const RunRecord run = LimitedRun();
  std::istringstream text(LoadgenDetail(run, Summarize(run)));
  std::string line;
  std::getline(text, line);
  EXPECT_EQ(line, "# unofficial = true");
  std::map<std::string, Json> values;
  while (std::getline(text, line)) {
    ASSERT_THAT(line, StartsWith(":::MLLOG {"));
    const Json j = Json::parse(line.substr(9));
    EXPECT_EQ(KeysOf(j), (std::set<std::string>{"key", "value", "time_ms", "namespace",
                                                "event_type", "metadata"}));
    EXPECT_EQ(KeysOf(j["metadata"]),
              (std::set<std::string>{"is_error", "is_warning", "file", "line_no", "pid", "tid"}));
    EXPECT_EQ(j["namespace"], "mlperf::logging");
    EXPECT_EQ(j["event_type"], "POINT_IN_TIME");
    EXPECT_EQ(j["metadata"]["is_error"], j["key"] == "error_request");
    values[j["key"]] = j["value"];
  }
  EXPECT_EQ(values["unofficial"], true);
  EXPECT_EQ(values["effective_scenario"], "Server");
  EXPECT_EQ(values["result_validity"], "INVALID");
  EXPECT_EQ(values["result_query_count"], 5);
  EXPECT_EQ(values["result_99.00_percentile_latency_ns"], 1194120000);
  EXPECT_EQ(values["result_first_token_50.00_percentile_latency_ns"], 150500000);
  EXPECT_EQ(values["result_time_per_output_token_99.90_percentile_ns"], 100000000);
  EXPECT_NEAR(values["result_completed_tokens_per_second"], 34 / 1.502, 1e-9);
  EXPECT_THAT(values["error_request"].get<std::string>(), HasSubstr("incomplete"));
}

TEST(PerfReportTest, IsOneLineWithEveryFigureAndTheSettings) {
  RunRecord run = LimitedRun();
  run.info.burstiness = std::numeric_limits<double>::infinity();
  run.info.metadata = {{"gpu", "H200"}};
  const std::string line = PerfJsonLine(run, Summarize(run));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const Json j = Json::parse(line);
  EXPECT_EQ(j["valid"], true);
  EXPECT_EQ(j["partial"], false);
  EXPECT_EQ(j["settings"]["seed"], 7);
  EXPECT_EQ(j["settings"]["burstiness"], "inf");
  EXPECT_EQ(j["settings"]["metadata"]["gpu"], "H200");
  EXPECT_EQ(j["counts"]["completed"], 5);
  EXPECT_EQ(j["counts"]["received_tokens"], 39);
  EXPECT_EQ(j["failures"], Json::parse(R"({"14": {"count": 1, "first_error":
                                       "UNAVAILABLE: connection reset by the server"}})"));
  EXPECT_NEAR(j["rates"]["steady_output_tokens_per_second"], 16 / 1.0206, 1e-9);
  EXPECT_NEAR(j["latencies"]["ttft_ms"]["p99.9"], 399.4, 1e-9);
  EXPECT_EQ(j["latencies"]["itl_ms"]["count"], 40);
  EXPECT_EQ(j["timeline"]["tokens"], Json::parse("[30, 9]"));
  EXPECT_TRUE(j["timeline"]["kv_usage"][0].is_null());  // not scraped
  EXPECT_GT(j["client"]["machine"]["threads"], 0);
  EXPECT_TRUE(PerfOf(HandMadeRun())["rates"]["goodput_requests_per_second"].is_null());
}

TEST(VerdictTest, NamesEveryReason) {
  RunRecord run = HandMadeRun();
  EXPECT_EQ(Judge(run, Summarize(run)).Word(), "valid");
  EXPECT_EQ(Judge(run, Summarize(run)).notes.size(), 2u);  // one failed, one was cancelled
  run.end = RunEnd::kTimeLimit;
  EXPECT_EQ(Judge(run, Summarize(run)).Word(), "PARTIAL");
  run.requests.clear();
  const Verdict none = Judge(run, Summarize(run));
  EXPECT_EQ(none.Word(), "INVALID and PARTIAL");
  EXPECT_THAT(none.reasons, ElementsAre("No request completed: there are no latencies.",
                                        StartsWith("The run ended early (time limit). ")));
}

TEST(ReportsTest, AnEmptyRunIsToldByAll) {
  RunRecord run;
  EXPECT_EQ(VllmJsonOf(run)["completed"], 0);
  EXPECT_EQ(SglangOf(run)["mean_ttft_ms"], 0);
  EXPECT_EQ(PerfOf(run)["valid"], false);
  EXPECT_THAT(VllmTextOf(run), HasSubstr("P99 ITL (ms):                            0.00"));
  EXPECT_THAT(LoadgenOf(run), HasSubstr("Result is : INVALID"));
}

}  // namespace
}  // namespace quire::load

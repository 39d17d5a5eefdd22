// From a request's instants to its stages and spans, on instants chosen by hand.
// Covers server/tracing/request_record.cc
#include "server/tracing/span_encoder.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "opentelemetry/trace_service.pb.h"
#include "server/tracing/request_record.h"

namespace quire {
namespace {

namespace otlp = opentelemetry::proto::collector::trace::v1;
constexpr int64_t kUnixOffset = 1'700'000'000'000'000'000;

RequestRecord Answered() {
  RequestRecord record{.parent_id = {1, 1, 1, 1, 1, 1, 1, 1},
                       .method = "Generate",
                       .operation = "chat",
                       .request_id = "r1",
                       .temperature = 0.5,
                       .top_p = 0.25,
                       .max_tokens = 7,
                       .arrived_ns = 100,
                       .submitted_ns = 200,
                       .closed_ns = 1000};
  record.context = {.trace_id = NewTraceId(), .span_id = NewSpanId(), .sampled = true};
  record.finish =
      FinishEvent{.reason = FinishReason::kMaxTokens,
                  .usage = {.prompt_tokens = 11, .completion_tokens = 7, .cached_tokens = 4},
                  .timings = {.arrival_ns = 100,
                              .admitted_ns = 300,
                              .first_token_ns = 500,
                              .last_token_ns = 800,
                              .finished_ns = 800}};
  return record;
}

std::vector<std::string> Texts(const std::vector<RequestStage>& stages) {
  std::vector<std::string> texts;
  for (const RequestStage& stage : stages) {
    texts.push_back(std::string(Name(stage.kind)) + " " + std::to_string(stage.begin_ns) + "-" +
                    std::to_string(stage.end_ns) + (stage.within_queue ? " queued" : ""));
  }
  return texts;
}

using Lines = std::vector<std::string>;

TEST(RequestStagesTest, AnAnsweredRequestHasFourWithoutGaps) {
  EXPECT_EQ(Texts(StagesOf(Answered())),
            (Lines{"arrival 100-200", "queue 200-300", "prefill 300-500", "decode 500-800"}));
  EXPECT_EQ(NumSpans(Answered()), 5);
}

TEST(RequestStagesTest, ARefusedRequestHasItsArrivalOnly) {
  RequestRecord record = Answered();
  record.finish.reset();
  EXPECT_EQ(Texts(StagesOf(record)), (Lines{"arrival 100-200"}));
  record.submitted_ns = 0;
  EXPECT_EQ(Texts(StagesOf(record)), (Lines{"arrival 100-1000"}));
}

TEST(RequestStagesTest, ARestoreLiesInTheQueueThatWaitedForIt) {
  RequestRecord record = Answered();
  record.finish->timings.restore_asked_ns = 220;
  record.finish->timings.restored_ns = 280;
  EXPECT_EQ(Texts(StagesOf(record)),
            (Lines{"arrival 100-200", "queue 200-300", "restore 220-280 queued", "prefill 300-500",
                   "decode 500-800"}));
}

TEST(RequestStagesTest, ARestoreAfterPreemptionStandsAlone) {
  RequestRecord record = Answered();
  record.finish->timings.restore_asked_ns = 400;
  record.finish->timings.restored_ns = 450;
  EXPECT_EQ(Texts(StagesOf(record)), (Lines{"arrival 100-200", "queue 200-300", "prefill 300-500",
                                            "decode 500-800", "restore 400-450"}));
}

TEST(RequestStagesTest, ACancelledRequestEndsInTheStageItReached) {
  RequestRecord record = Answered();
  RequestTimings& at = record.finish->timings;
  at = {.arrival_ns = 100, .finished_ns = 1200};  // the engine's end, behind the RPC's
  EXPECT_EQ(Texts(StagesOf(record)), (Lines{"arrival 100-200", "queue 200-1200"}));
  EXPECT_EQ(EndOf(record), 1200);
  at.restore_asked_ns = 210;
  EXPECT_EQ(Texts(StagesOf(record)),
            (Lines{"arrival 100-200", "queue 200-1200", "restore 210-1200 queued"}));
  at.restored_ns = 215;
  at.admitted_ns = 220;
  EXPECT_EQ(Texts(StagesOf(record)), (Lines{"arrival 100-200", "queue 200-220",
                                            "restore 210-215 queued", "prefill 220-1200"}));
}

// The value of an attribute as text.
std::map<std::string, std::string> AttributesOf(
    const google::protobuf::RepeatedPtrField<otlp::KeyValue>& pairs) {
  std::map<std::string, std::string> attributes;
  for (const otlp::KeyValue& pair : pairs) {
    const otlp::AnyValue& value = pair.value();
    std::string text = value.ShortDebugString();
    EXPECT_EQ(attributes.count(pair.key()), 0u) << pair.key() << " stands twice";
    attributes[pair.key()] = text;
  }
  return attributes;
}

TEST(SpanEncoderTest, SpansFormATreeInUnixTime) {
  otlp::ScopeSpans scope;
  RequestRecord record = Answered();
  record.trace_state = "vendor=1";
  record.finish->timings.restore_asked_ns = 220;
  record.finish->timings.restored_ns = 280;
  SpanEncoder("demo").Append(record, kUnixOffset, &scope);
  ASSERT_EQ(scope.spans_size(), NumSpans(record));
  const otlp::Span& server = scope.spans(0);
  EXPECT_EQ(server.name(), "quire.v1.Inference/Generate");
  EXPECT_EQ(server.kind(), otlp::Span::SPAN_KIND_SERVER);
  EXPECT_EQ(server.parent_span_id(), std::string(8, '\1'));
  EXPECT_EQ(server.flags(), 0x301u) << "sampled, and the parent is remote";
  EXPECT_EQ(server.start_time_unix_nano(), 1'700'000'000'000'000'100u);
  EXPECT_EQ(server.end_time_unix_nano(), 1'700'000'000'000'001'000u);
  EXPECT_EQ(server.status().code(), otlp::Status::STATUS_CODE_UNSET);
  std::map<std::string, std::string> ids;
  for (const otlp::Span& span : scope.spans()) {
    EXPECT_EQ(span.trace_id().size(), 16u);
    EXPECT_EQ(span.span_id().size(), 8u);
    EXPECT_EQ(span.trace_id(), server.trace_id());
    EXPECT_EQ(span.trace_state(), "vendor=1");
    EXPECT_TRUE(ids.emplace(span.span_id(), span.name()).second);
  }
  std::map<std::string, std::string> parents;
  for (int i = 1; i < scope.spans_size(); ++i) {
    parents[scope.spans(i).name()] = ids[scope.spans(i).parent_span_id()];
  }
  const std::string root = server.name();
  EXPECT_EQ(parents, (std::map<std::string, std::string>{{"arrival", root},
                                                         {"queue", root},
                                                         {"restore", "queue"},
                                                         {"prefill", root},
                                                         {"decode", root}}));
}

TEST(SpanEncoderTest, AttributesFollowTheConventionsAndHoldNoText) {
  otlp::ScopeSpans scope;
  SpanEncoder("demo").Append(Answered(), 0, &scope);
  const auto attributes = AttributesOf(scope.spans(0).attributes());
  const std::map<std::string, std::string> expected = {
      {"rpc.system", "string_value: \"grpc\""},
      {"rpc.service", "string_value: \"quire.v1.Inference\""},
      {"rpc.method", "string_value: \"Generate\""},
      {"rpc.grpc.status_code", "int_value: 0"},
      {"gen_ai.provider.name", "string_value: \"quire\""},
      {"gen_ai.operation.name", "string_value: \"chat\""},
      {"gen_ai.response.model", "string_value: \"demo\""},
      {"gen_ai.response.id", "string_value: \"r1\""},
      {"gen_ai.request.max_tokens", "int_value: 7"},
      {"gen_ai.request.temperature", "double_value: 0.5"},
      {"gen_ai.request.top_p", "double_value: 0.25"},
      {"gen_ai.usage.input_tokens", "int_value: 11"},
      {"gen_ai.usage.cache_read.input_tokens", "int_value: 4"},
      {"gen_ai.usage.output_tokens", "int_value: 7"},
      {"gen_ai.response.finish_reasons", "array_value { values { string_value: \"length\" } }"},
      {"quire.finish_reason", "string_value: \"MAX_TOKENS\""},
      {"quire.session_turn", "bool_value: false"},
  };
  EXPECT_EQ(attributes, expected);
}

TEST(SpanEncoderTest, FirstTokenAndPreemptionAreEvents) {
  otlp::ScopeSpans scope;
  RequestRecord record = Answered();
  record.finish->timings.preempted_ns = 600;
  record.finish->usage.preemptions = 2;
  SpanEncoder("demo").Append(record, kUnixOffset, &scope);
  ASSERT_EQ(scope.spans(0).events_size(), 2);
  const otlp::Span::Event& first = scope.spans(0).events(0);
  EXPECT_EQ(first.name(), "quire.first_token");
  EXPECT_EQ(first.time_unix_nano(), 1'700'000'000'000'000'500u);
  const otlp::Span::Event& preempted = scope.spans(0).events(1);
  EXPECT_EQ(preempted.name(), "quire.preempted");
  EXPECT_EQ(preempted.time_unix_nano(), 1'700'000'000'000'000'600u);
  EXPECT_EQ(AttributesOf(preempted.attributes()),
            (std::map<std::string, std::string>{{"quire.preemptions", "int_value: 2"}}));
}

TEST(SpanEncoderTest, OnlyTheServersOwnFailuresAreErrors) {
  const struct {
    int code;
    bool error;
    const char* type;
  } kCases[] = {{1, false, ""},  // CANCELLED
                {3, false, ""},  // INVALID_ARGUMENT
                {5, false, ""},         {8, false, ""},           {4, true, "DEADLINE_EXCEEDED"},
                {13, true, "INTERNAL"}, {14, true, "UNAVAILABLE"}};
  for (const auto& c : kCases) {
    otlp::ScopeSpans scope;
    RequestRecord record = Answered();
    record.parent_id = {};
    record.finish.reset();
    record.code = c.code;
    SpanEncoder("demo").Append(record, 0, &scope);
    const otlp::Span& server = scope.spans(0);
    EXPECT_EQ(server.parent_span_id(), "") << "a root";
    EXPECT_EQ(server.status().code() == otlp::Status::STATUS_CODE_ERROR, c.error) << c.code;
    const auto attributes = AttributesOf(server.attributes());
    EXPECT_EQ(attributes.count("error.type"), c.error ? 1u : 0u);
    if (c.error) {
      EXPECT_EQ(attributes.at("error.type"), "string_value: \"" + std::string(c.type) + "\"");
    }
  }
}

}  // namespace
}  // namespace quire

// inference.GRPCInferenceService over real gRPC: tensors in and out, several requests on one
// stream, and what is refused.
// Covers server/wire/kserve/infer_parameters.cc, server/wire/kserve/infer_request.cc,
// server/wire/kserve/kserve_format.cc, server/wire/kserve/kserve_services.cc,
// server/wire/kserve/model_stream.cc, server/wire/kserve/tensors.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "field/kserve.grpc.pb.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = grpc::StatusCode;
using Request = inference::ModelInferRequest;
using Service = inference::GRPCInferenceService;

Request::InferInputTensor* Add(Request* request, const std::string& name,
                               const std::string& datatype) {
  Request::InferInputTensor* tensor = request->add_inputs();
  tensor->set_name(name);
  tensor->set_datatype(datatype);
  tensor->add_shape(1);
  return tensor;
}

void AddText(Request* request, const std::string& name, const std::string& text) {
  Add(request, name, "BYTES")->mutable_contents()->add_bytes_contents(text);
}
void AddInt(Request* request, const std::string& name, int32_t value) {
  Add(request, name, "INT32")->mutable_contents()->add_int_contents(value);
}
void AddBool(Request* request, const std::string& name, bool value) {
  Add(request, name, "BOOL")->mutable_contents()->add_bool_contents(value);
}

Request Ask(int32_t max_tokens, bool stream = false) {
  Request request;
  request.set_model_name("test-model");
  request.set_id("any text: ä 1/2");
  AddText(&request, "text_input", "hi");
  AddInt(&request, "max_tokens", max_tokens);
  if (stream) AddBool(&request, "stream", true);
  return request;
}

grpc::Status Infer(TestServer& server, const Request& request,
                   inference::ModelInferResponse* response) {
  grpc::ClientContext context;
  return Service::NewStub(server.channel())->ModelInfer(&context, request, response);
}

std::string TextOf(const inference::ModelInferResponse& response) {
  for (int i = 0; i < response.outputs_size(); ++i) {
    if (response.outputs(i).name() != "text_output") continue;
    if (response.raw_output_contents().empty()) {
      return response.outputs(i).contents().bytes_contents(0);
    }
    return response.raw_output_contents(i).substr(4);
  }
  return "";
}

TEST(KserveTest, OneRequestOneAnswer) {
  TestServer server;  // says abcdefghij, over and over
  inference::ModelInferResponse response;
  const grpc::Status status = Infer(server, Ask(12), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(TextOf(response), "abcdefghijab");
  EXPECT_EQ(response.id(), "any text: ä 1/2");
  EXPECT_EQ(response.model_name(), "test-model");
  EXPECT_EQ(response.model_version(), "1");
  ASSERT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(response.outputs(0).datatype(), "BYTES");
  EXPECT_THAT(response.outputs(0).shape(), ElementsAre(1));
  server.ExpectNothingLeft();
}

TEST(KserveTest, RawContentsAreAnsweredInKind) {
  TestServer server;
  Request request;
  request.set_model_name("test-model");
  Add(&request, "text_input", "BYTES");
  request.add_raw_input_contents(std::string("\2\0\0\0hi", 6));
  Add(&request, "max_tokens", "INT64");
  request.add_raw_input_contents(std::string("\3\0\0\0\0\0\0\0", 8));
  Add(&request, "return_num_output_tokens", "BOOL");
  request.add_raw_input_contents(std::string("\1", 1));
  Add(&request, "return_finish_reason", "BOOL");
  request.add_raw_input_contents(std::string("\1", 1));
  inference::ModelInferResponse response;
  const grpc::Status status = Infer(server, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.raw_output_contents(),
              ElementsAre(std::string("\3\0\0\0abc", 7), std::string("\6\0\0\0length", 10),
                          std::string("\3\0\0\0", 4)));
  EXPECT_FALSE(response.outputs(0).has_contents());
}

TEST(KserveTest, SettingsComeAsTensorsOrAsJson) {
  TestServer server;
  Request request = Ask(12);
  Add(&request, "stop_words", "BYTES")->mutable_contents()->add_bytes_contents("ef");
  inference::ModelInferResponse response;
  ASSERT_TRUE(Infer(server, request, &response).ok());
  EXPECT_EQ(TextOf(response), "abcd");

  request = Request();
  request.set_model_name("test-model");
  AddText(&request, "text_input", "hi");
  // Numbers as strings, as many clients send them.
  AddText(&request, "sampling_parameters",
          R"({"max_tokens": "6", "temperature": "0", "top_p": 0.95, "stop": ["xyz", "cd"],
              "n": 1, "ignore_eos": true, "seed": 7})");
  const grpc::Status status = Infer(server, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(TextOf(response), "ab");
}

TEST(KserveTest, OnlyTheOutputsThatAreAskedForAreSent) {
  TestServer server;
  Request request = Ask(3);
  request.add_outputs()->set_name("num_input_tokens");
  request.add_outputs()->set_name("finish_reason");
  inference::ModelInferResponse response;
  ASSERT_TRUE(Infer(server, request, &response).ok());
  ASSERT_EQ(response.outputs_size(), 2);
  EXPECT_EQ(response.outputs(0).name(), "finish_reason");
  EXPECT_EQ(response.outputs(0).contents().bytes_contents(0), "length");
  EXPECT_THAT(response.outputs(1).contents().uint_contents(), ElementsAre(3));  // <s>hi
}

struct StreamCall {
  explicit StreamCall(TestServer& server)
      : stub(Service::NewStub(server.channel())), stream(stub->ModelStreamInfer(&context)) {}

  bool Read() { return stream->Read(&response); }
  bool final() const {
    const auto& parameters = response.infer_response().parameters();
    return parameters.count("triton_final_response") != 0 &&
           parameters.at("triton_final_response").bool_param();
  }

  grpc::ClientContext context;
  std::unique_ptr<Service::Stub> stub;
  std::unique_ptr<grpc::ClientReaderWriter<Request, inference::ModelStreamInferResponse>> stream;
  inference::ModelStreamInferResponse response;
};

TEST(KserveTest, TwoRequestsShareOneStream) {
  TestServer server;
  StreamCall call(server);
  for (const char* id : {"first", "second"}) {
    Request request = Ask(25, /*stream=*/true);
    request.set_id(id);
    (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
    ASSERT_TRUE(call.stream->Write(request));
  }
  std::map<std::string, std::string> texts;
  std::map<std::string, int> responses;
  int finals = 0;
  while (finals < 2 && call.Read()) {
    ASSERT_EQ(call.response.error_message(), "");
    texts[call.response.infer_response().id()] += TextOf(call.response.infer_response());
    ++responses[call.response.infer_response().id()];
    finals += call.final() ? 1 : 0;
  }
  EXPECT_EQ(texts["first"], "abcdefghijabcdefghijabcde");
  EXPECT_EQ(texts["second"], texts["first"]);
  EXPECT_GT(responses["first"], 1);
  // Another request on the same call, answered in one piece.
  ASSERT_TRUE(call.stream->Write(Ask(5)));
  ASSERT_TRUE(call.Read());
  EXPECT_TRUE(call.final());
  EXPECT_EQ(TextOf(call.response.infer_response()), "abcde");
  call.stream->WritesDone();
  EXPECT_FALSE(call.Read());
  EXPECT_TRUE(call.stream->Finish().ok());
  server.ExpectNothingLeft();
}

TEST(KserveTest, AFailedRequestLeavesTheOthersOfItsStreamAlone) {
  TestServer server;
  StreamCall call(server);
  Request bad = Ask(5, true);
  bad.set_id("bad");
  AddInt(&bad, "beam_width", 4);
  ASSERT_TRUE(call.stream->Write(bad));
  ASSERT_TRUE(call.Read());
  EXPECT_EQ(call.response.infer_response().id(), "bad");
  EXPECT_THAT(call.response.error_message(), HasSubstr("INVALID_ARGUMENT: beam_width: "));
  ASSERT_TRUE(call.stream->Write(Ask(2)));
  ASSERT_TRUE(call.Read());
  EXPECT_EQ(TextOf(call.response.infer_response()), "ab");
  call.stream->WritesDone();
  EXPECT_TRUE(call.stream->Finish().ok());
  server.ExpectNothingLeft();
}

TEST(KserveTest, ManyRequestsOfOneStreamComeAndGo) {
  TestServerOptions options;
  options.front.max_open_streams = 40;  // fewer than the stream will have carried
  TestServer server(options);
  StreamCall call(server);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(call.stream->Write(Ask(2)));
    ASSERT_TRUE(call.Read());
    ASSERT_EQ(call.response.error_message(), "");
  }
  call.stream->WritesDone();
  EXPECT_TRUE(call.stream->Finish().ok());
  server.ExpectNothingLeft();
}

TEST(KserveTest, MoreRequestsThanTheServerHasStreamsAreRefusedOneByOne) {
  TestServerOptions options;
  options.front.max_open_streams = 4;
  TestServer server(options);
  server.gate().Allow(0);
  StreamCall call(server);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(call.stream->Write(Ask(2)));
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(call.Read());
    EXPECT_THAT(call.response.error_message(), HasSubstr("UNAVAILABLE"));
  }
  server.gate().Allow(-1);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(call.Read());
    EXPECT_EQ(TextOf(call.response.infer_response()), "ab");
  }
  call.stream->WritesDone();
  EXPECT_TRUE(call.stream->Finish().ok());
  server.ExpectNothingLeft();
}

TEST(KserveTest, RequestsOfAStreamCanBeAborted) {
  TestServer server;
  server.gate().Allow(3);
  StreamCall call(server);
  ASSERT_TRUE(call.stream->Write(Ask(1000, true)));
  ASSERT_TRUE(call.Read());
  grpc::ClientContext context;
  v1::AbortRequest all;
  all.set_all(true);
  v1::AbortResponse aborted;
  ASSERT_TRUE(server.control().Abort(&context, all, &aborted).ok());
  EXPECT_EQ(aborted.aborted(), 1u);
  server.gate().Allow(-1);
  while (call.response.error_message().empty() && call.Read()) {
  }
  EXPECT_THAT(call.response.error_message(), HasSubstr("CANCELLED"));
  call.stream->WritesDone();
  EXPECT_TRUE(call.stream->Finish().ok());
  server.ExpectNothingLeft();
}

TEST(KserveTest, CancellingTheStreamEndsItsRequests) {
  TestServer server;
  server.gate().Allow(3);
  StreamCall call(server);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(call.stream->Write(Ask(1000, true)));
  ASSERT_TRUE(call.Read());
  call.context.TryCancel();
  while (call.Read()) {
  }
  EXPECT_EQ(call.stream->Finish().error_code(), Code::CANCELLED);
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
}

TEST(KserveTest, ReadinessAndTheModelsTensors) {
  TestServer server;
  const auto stub = Service::NewStub(server.channel());
  const auto call = [&](auto method, const auto& request, auto* response) {
    grpc::ClientContext context;
    return ((*stub).*method)(&context, request, response);
  };
  using Stub = Service::Stub;
  inference::ServerLiveResponse live;
  EXPECT_TRUE(call(&Stub::ServerLive, inference::ServerLiveRequest(), &live).ok());
  EXPECT_TRUE(live.live());
  inference::ModelReadyRequest of;
  of.set_name("test-model");
  inference::ModelReadyResponse ready;
  EXPECT_TRUE(call(&Stub::ModelReady, of, &ready).ok());
  EXPECT_TRUE(ready.ready());
  of.set_name("another");
  EXPECT_TRUE(call(&Stub::ModelReady, of, &ready).ok());
  EXPECT_FALSE(ready.ready());
  inference::ModelConfigRequest config_of;
  config_of.set_name("test-model");
  inference::ModelConfigResponse config;
  EXPECT_TRUE(call(&Stub::ModelConfig, config_of, &config).ok());
  EXPECT_TRUE(config.config().model_transaction_policy().decoupled());
  EXPECT_EQ(config.config().input(0).name(), "text_input");
  EXPECT_EQ(config.config().input(0).data_type(), inference::TYPE_STRING);
  inference::ModelMetadataRequest metadata_of;
  metadata_of.set_name("test-model");
  metadata_of.set_version("2");
  inference::ModelMetadataResponse metadata;
  EXPECT_EQ(call(&Stub::ModelMetadata, metadata_of, &metadata).error_code(), Code::NOT_FOUND);
  metadata_of.set_version("1");
  EXPECT_TRUE(call(&Stub::ModelMetadata, metadata_of, &metadata).ok());
  // Every tensor that is listed is taken.
  for (const auto& input : metadata.inputs()) EXPECT_NE(input.datatype(), "");
  inference::ModelInferResponse response;
  EXPECT_TRUE(Infer(server, Ask(2), &response).ok());
  inference::ModelStatisticsResponse statistics;
  EXPECT_TRUE(call(&Stub::ModelStatistics, inference::ModelStatisticsRequest(), &statistics).ok());
  EXPECT_EQ(statistics.model_stats(0).inference_stats().success().count(), 1u);
  server.front().StartDrain();
  of.set_name("test-model");
  EXPECT_TRUE(call(&Stub::ModelReady, of, &ready).ok());
  EXPECT_FALSE(ready.ready());
}

struct BadCase {
  const char* name;
  std::function<void(Request&)> spoil;
  Code code;
  const char* field;
  const char* message;
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.name; }

BadCase Json(const char* name, const char* json, const char* field, const char* message) {
  return {name, [json](Request& r) { AddText(&r, "sampling_parameters", json); },
          Code::INVALID_ARGUMENT, field, message};
}

BadCase Parameter(const char* name, const char* message) {
  return {name, [name](Request& r) { (*r.mutable_parameters())[name].set_int64_param(1); },
          Code::INVALID_ARGUMENT, nullptr, message};
}

std::vector<BadCase> SettingCases() {
  const Code code = Code::INVALID_ARGUMENT;
  return {
      {"no_model", [](Request& r) { r.clear_model_name(); }, code, "model_name", "missing"},
      {"model", [](Request& r) { r.set_model_name("x"); }, Code::NOT_FOUND, "MODEL_NOT_FOUND", ""},
      {"version", [](Request& r) { r.set_model_version("2"); }, Code::NOT_FOUND, "MODEL_NOT_FOUND",
       "version 1"},
      {"no_text", [](Request& r) { r.clear_inputs(); }, code, "text_input", "missing"},
      {"unknown_tensor", [](Request& r) { AddInt(&r, "end_id", 1); }, code, "end_id",
       "ModelMetadata"},
      {"beams", [](Request& r) { AddInt(&r, "beam_width", 2); }, code, "beam_width", "one answer"},
      {"echo", [](Request& r) { AddBool(&r, "exclude_input_in_output", false); }, code,
       "exclude_input_in_output", "never repeats"},
      {"logprobs", [](Request& r) { AddBool(&r, "return_log_probs", true); }, code,
       "return_log_probs", ""},
      {"stream", [](Request& r) { AddBool(&r, "stream", true); }, code, "stream",
       "ModelStreamInfer"},
      {"negative", [](Request& r) { AddInt(&r, "top_k", -1); }, code, "top_k", "at least 0"},
      {"range",
       [](Request& r) {
         Add(&r, "temperature", "FP32")->mutable_contents()->add_fp32_contents(-1);
       },
       code, "temperature", "between"},
      {"too_long",
       [](Request& r) { r.mutable_inputs(1)->mutable_contents()->set_int_contents(0, 4000); }, code,
       "max_tokens", "at most 2045"},
      {"unknown_output", [](Request& r) { r.add_outputs()->set_name("logits"); }, code, "logits",
       "no such output"},
      {"unknown_field",
       [](Request& r) {
         inference::InferTensorContents* c = r.mutable_inputs(1)->mutable_contents();
         c->GetReflection()->MutableUnknownFields(c)->AddVarint(99, 1);
       },
       code, "inputs[1].contents.field number 99", "does not know"},
      Json("json_broken", "{", "sampling_parameters", ""),
      Json("json_list", "[1]", "sampling_parameters", "object"),
      Json("json_unknown", R"({"bad_words": ["x"]})", "sampling_parameters.bad_words", "not know"),
      Json("json_n", R"({"n": 2})", "sampling_parameters.n", "one answer"),
      Json("json_type", R"({"temperature": "hot"})", "sampling_parameters.temperature", "number"),
      Json("json_twice", R"({"max_tokens": 4})", "sampling_parameters.max_tokens",
           "more than once"),
      Json("json_nested", R"({"stop": [["x"]]})", "sampling_parameters.stop", "must be"),
      Parameter("sequence_id", "sessions"),
      Parameter("priority", "priority"),
      Parameter("timeout", "deadline"),
      Parameter("mystery", "does not know"),
      Parameter("triton_enable_empty_final_response", "bool_param"),
  };
}

std::vector<BadCase> TensorCases() {
  const Code code = Code::INVALID_ARGUMENT;
  return {
      {"twice", [](Request& r) { AddInt(&r, "max_tokens", 4); }, code, "max_tokens",
       "more than once"},
      {"no_name", [](Request& r) { r.mutable_inputs(1)->clear_name(); }, code, "inputs[1].name",
       "missing"},
      {"datatype", [](Request& r) { r.mutable_inputs(1)->set_datatype("FP16"); }, code,
       "max_tokens", "datatype"},
      {"wrong_contents", [](Request& r) { r.mutable_inputs(1)->set_datatype("FP32"); }, code,
       "max_tokens", "does not fit"},
      {"shape", [](Request& r) { r.mutable_inputs(1)->set_shape(0, 2); }, code, "max_tokens",
       "does not fit"},
      {"shape_negative", [](Request& r) { r.mutable_inputs(1)->set_shape(0, -1); }, code,
       "max_tokens", "dimension of -1"},
      {"shape_overflow",
       [](Request& r) {
         for (int i = 0; i < 8; ++i) r.mutable_inputs(1)->add_shape(1 << 20);
       },
       code, "max_tokens", "does not fit"},
      {"batch",
       [](Request& r) {
         r.mutable_inputs(0)->set_shape(0, 2);
         r.mutable_inputs(0)->mutable_contents()->add_bytes_contents("ho");
       },
       code, "text_input", "one request for each prompt"},
      {"utf8",
       [](Request& r) { r.mutable_inputs(0)->mutable_contents()->set_bytes_contents(0, "\xFF"); },
       code, "text_input", "UTF-8"},
      {"text_as_number", [](Request& r) { r.mutable_inputs(0)->set_name("min_tokens"); }, code,
       "min_tokens", "whole number"},
      {"shared_memory",
       [](Request& r) {
         (*r.mutable_inputs(0)->mutable_parameters())["shared_memory_region"].set_string_param("x");
       },
       code, "text_input", "shared_memory_region"},
      {"raw_count", [](Request& r) { r.add_raw_input_contents("x"); }, code, "raw_input_contents",
       "1 entries for 2 inputs"},
      {"raw_and_contents",
       [](Request& r) {
         r.add_raw_input_contents(std::string("\2\0\0\0hi", 6));
         r.add_raw_input_contents(std::string("\4\0\0\0", 4));
       },
       code, "text_input", "send one of them"},
      {"raw_cut",
       [](Request& r) {
         for (auto& input : *r.mutable_inputs()) input.clear_contents();
         r.add_raw_input_contents(std::string("\5\0\0\0hi", 6));
         r.add_raw_input_contents(std::string("\4\0\0\0", 4));
       },
       code, "text_input", "cut short"},
      {"raw_odd",
       [](Request& r) {
         for (auto& input : *r.mutable_inputs()) input.clear_contents();
         r.add_raw_input_contents(std::string("\2\0\0\0hi", 6));
         r.add_raw_input_contents(std::string("\4\0\0", 3));
       },
       code, "max_tokens", "no multiple of 4"},
  };
}

TestServer& Server() {
  static TestServer* server = new TestServer();
  return *server;
}

class KserveBadInputTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(KserveBadInputTest, IsRefusedWithItsFieldAndHasNoSideEffects) {
  const BadCase& bad = GetParam();
  Request request = Ask(4);
  bad.spoil(request);
  inference::ModelInferResponse response;
  const grpc::Status status = Infer(Server(), request, &response);
  EXPECT_EQ(status.error_code(), bad.code) << status.error_message();
  const std::string field =
      bad.field != nullptr ? bad.field : std::string("parameters.") + bad.name;
  EXPECT_EQ(bad.code == Code::INVALID_ARGUMENT ? ViolatedField(status) : Reason(status), field);
  EXPECT_THAT(status.error_message(), HasSubstr(bad.message));
  Server().ExpectNothingLeft();
  EXPECT_TRUE(Infer(Server(), Ask(4), &response).ok());
}

const auto kName = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Settings, KserveBadInputTest, ::testing::ValuesIn(SettingCases()), kName);
INSTANTIATE_TEST_SUITE_P(Tensors, KserveBadInputTest, ::testing::ValuesIn(TensorCases()), kName);

TEST(KserveTest, MalformedMessagesOfAStreamAreAnsweredThere) {
  TestServer server;
  StreamCall call(server);
  Request request = Ask(4);
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(50, 1);
  ASSERT_TRUE(call.stream->Write(request));
  ASSERT_TRUE(call.Read());
  EXPECT_THAT(call.response.error_message(), HasSubstr("field number 50"));
  call.stream->WritesDone();
  EXPECT_TRUE(call.stream->Finish().ok());
}

}  // namespace
}  // namespace quire

// vllm.Inference and vllm.Control over real gRPC, as a client of vLLM's own server sees them.
// Covers server/wire/vllm/vllm_format.cc, server/wire/vllm/vllm_services.cc,
// server/wire/field_names.cc, server/wire/refused_methods.cc, server/front/field_services.cc
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "field/vllm_control.grpc.pb.h"
#include "field/vllm_inference.grpc.pb.h"
#include "tests/server/log_capture.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = grpc::StatusCode;
using vllm::FinishInfo;

vllm::GenerateRequest Ask(uint32_t max_tokens) {
  vllm::GenerateRequest request;
  request.set_text("hi");
  request.mutable_stopping()->set_max_new_tokens(max_tokens);
  return request;
}

struct Streamed {
  grpc::Status status;
  std::vector<vllm::GenerateResponse> frames;
  std::string text;
  std::vector<uint32_t> ids;
  std::vector<float> logprobs;
  uint32_t tokens = 0;
  FinishInfo finish;
};

Streamed Stream(TestServer& server, const vllm::GenerateRequest& request) {
  const auto stub = vllm::Inference::NewStub(server.channel());
  grpc::ClientContext context;
  Streamed out;
  const auto reader = stub->GenerateStream(&context, request);
  vllm::GenerateResponse frame;
  while (reader->Read(&frame)) {
    out.frames.push_back(frame);
    const vllm::SequenceOutput& output = frame.outputs();
    out.text += output.text();
    out.tokens += output.num_tokens();
    out.ids.insert(out.ids.end(), output.token_ids().begin(), output.token_ids().end());
    out.logprobs.insert(out.logprobs.end(), output.logprobs().begin(), output.logprobs().end());
    if (output.has_finish_info()) out.finish = output.finish_info();
  }
  out.status = reader->Finish();
  return out;
}

grpc::Status Generate(TestServer& server, const vllm::GenerateRequest& request,
                      vllm::GenerateResponse* response) {
  grpc::ClientContext context;
  return vllm::Inference::NewStub(server.channel())->Generate(&context, request, response);
}

TEST(VllmTest, StreamHasThePromptFirstAndTheFinishLast) {
  TestServer server;  // says abcdefghij, over and over
  vllm::GenerateRequest request = Ask(12);
  request.mutable_response()->set_output_token_ids(true);
  request.mutable_response()->set_output_logprobs(true);
  const Streamed out = Stream(server, request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.frames.front().prompt_info().num_prompt_tokens(), 3u);  // <s>hi
  EXPECT_FALSE(out.frames.front().has_outputs());
  EXPECT_EQ(out.text, "abcdefghijab");
  EXPECT_EQ(out.tokens, 12u);
  EXPECT_EQ(out.ids,
            std::vector<uint32_t>({97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 97, 98}));
  ASSERT_EQ(out.logprobs.size(), 12u);
  EXPECT_FLOAT_EQ(out.logprobs[3], -3.5f);  // as the worker's script says
  EXPECT_EQ(out.finish.finish_reason(), FinishInfo::LENGTH);
  EXPECT_EQ(out.finish.num_output_tokens(), 12u);
  server.ExpectNothingLeft();
}

TEST(VllmTest, UnaryHasAllInOneMessage) {
  TestServer server;
  vllm::GenerateRequest request = Ask(4);
  request.clear_text();
  for (const uint32_t id : {256u, 104u}) request.mutable_token_ids()->add_ids(id);
  request.mutable_response()->set_prompt_token_ids(true);
  vllm::GenerateResponse response;
  ASSERT_TRUE(Generate(server, request, &response).ok());
  EXPECT_THAT(response.prompt_info().token_ids(), ElementsAre(256, 104));
  EXPECT_EQ(response.outputs().text(), "abcd");
  EXPECT_EQ(response.outputs().num_tokens(), 4u);
  EXPECT_TRUE(response.outputs().token_ids().empty());  // not asked for
  EXPECT_EQ(response.outputs().finish_info().finish_reason(), FinishInfo::LENGTH);
  server.ExpectNothingLeft();
}

TEST(VllmTest, DefaultsAreTheProtocols) {
  TestServerOptions options;
  options.max_model_len = 16;
  TestServer server(options);
  vllm::GenerateRequest request = Ask(0);
  EXPECT_EQ(Stream(server, request).finish.num_output_tokens(), 13u);  // the context's room
  TestServer wide;
  EXPECT_EQ(Stream(wide, request).finish.num_output_tokens(), 20u);
}

TEST(VllmTest, EndsNameTheirCause) {
  TestServerOptions options;
  options.script_ids = {97, 98, 99, kTestEos};
  TestServer server(options);
  FinishInfo finish = Stream(server, Ask(9)).finish;
  EXPECT_EQ(finish.finish_reason(), FinishInfo::STOP);
  EXPECT_EQ(finish.eos_token_id(), static_cast<uint32_t>(kTestEos));

  vllm::GenerateRequest request = Ask(9);
  request.mutable_stopping()->add_stop_token_ids(98);
  finish = Stream(server, request).finish;
  EXPECT_EQ(finish.stop_token_id(), 98u);

  request = Ask(9);
  request.mutable_stopping()->add_stop_strings("bc");
  Streamed out = Stream(server, request);
  EXPECT_EQ(out.finish.stop_string(), "bc");
  EXPECT_EQ(out.text, "a");
  request.mutable_stopping()->set_include_stop_strings(true);
  EXPECT_EQ(Stream(server, request).text, "abc");
}

TEST(VllmTest, CountsAloneCanBeAskedFor) {
  TestServer server;
  vllm::GenerateRequest request = Ask(5);
  request.mutable_response()->set_output_text(false);
  const Streamed out = Stream(server, request);
  EXPECT_EQ(out.text, "");
  EXPECT_TRUE(out.ids.empty());
  EXPECT_EQ(out.tokens, 5u);
}

TEST(VllmTest, SessionIdKeepsTheConversationAndChangesNoToken) {
  TestServer server;
  vllm::GenerateRequest request = Ask(4);
  request.set_session_id("talk");
  EXPECT_EQ(Stream(server, request).text, "abcd");
  // The whole conversation again, as this protocol sends it: 2 + 4 bytes, then more.
  request.set_text("hiabcd and more");
  const Streamed out = Stream(server, request);
  EXPECT_EQ(out.frames.front().prompt_info().num_prompt_tokens(), 16u);
  grpc::ClientContext context;
  v1::GetSessionRequest get;
  get.set_session_id("talk");
  v1::Session session;
  ASSERT_TRUE(server.sessions().Get(&context, get, &session).ok());
  EXPECT_EQ(session.position(), 20u);
}

// A stream of many tokens, by the id "long".
std::unique_ptr<grpc::ClientReader<vllm::GenerateResponse>> StreamLong(
    vllm::Inference::Stub& stub, grpc::ClientContext* context) {
  vllm::GenerateRequest request = Ask(1000);
  request.set_request_id("long");
  return stub.GenerateStream(context, request);
}

TEST(VllmTest, AbortEndsAStreamRegularly) {
  TestServer server;
  server.gate().Allow(3);
  const auto stub = vllm::Inference::NewStub(server.channel());
  grpc::ClientContext context;
  const auto reader = StreamLong(*stub, &context);
  vllm::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  ASSERT_TRUE(reader->Read(&frame));
  const auto control = vllm::Control::NewStub(server.channel());
  vllm::AbortRequest abort;
  abort.add_request_ids("long");
  abort.add_request_ids("no-such-request");
  vllm::AbortResponse aborted;
  grpc::ClientContext abort_context;
  EXPECT_TRUE(control->Abort(&abort_context, abort, &aborted).ok());
  server.gate().Allow(-1);
  while (reader->Read(&frame)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(frame.outputs().finish_info().finish_reason(), FinishInfo::ABORTED);
  EXPECT_GT(frame.outputs().finish_info().num_output_tokens(), 0u);
  server.ExpectNothingLeft();
}

// The search for the streams of an id holds the table of all streams.
TEST(VllmTest, AbortTakesEachIdOnceAndManyOnlyInSeveralCalls) {
  TestServer server;
  server.gate().Allow(3);
  const auto stub = vllm::Inference::NewStub(server.channel());
  grpc::ClientContext context;
  const auto reader = StreamLong(*stub, &context);
  vllm::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  const auto control = vllm::Control::NewStub(server.channel());
  vllm::AbortRequest abort;
  vllm::AbortResponse aborted;
  grpc::ClientContext refused, served;
  for (int i = 0; i < 65537; ++i) abort.add_request_ids("long");
  const grpc::Status status = control->Abort(&refused, abort, &aborted);
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(ViolatedField(status), "request_ids");
  abort.mutable_request_ids()->RemoveLast();
  const LogCapture log;
  EXPECT_TRUE(control->Abort(&served, abort, &aborted).ok());
  const auto lines = [&log] { return log.Lines("method=vllm.Control/Abort"); };
  EXPECT_TRUE(TestServer::Eventually([&] { return !lines().empty(); }));
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("named=65536 found=1 ")));
  server.gate().Allow(-1);
  while (reader->Read(&frame)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  server.ExpectNothingLeft();
}

TEST(VllmTest, ACancelledCallFreesItsBlocks) {
  TestServer server;
  server.gate().Allow(3);
  grpc::ClientContext context;
  const auto stub = vllm::Inference::NewStub(server.channel());
  const auto reader = stub->GenerateStream(&context, Ask(1000));
  vllm::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  context.TryCancel();
  while (reader->Read(&frame)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), Code::CANCELLED);
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
}

TEST(VllmTest, ControlTellsTheSettings) {
  TestServer server;
  const auto control = vllm::Control::NewStub(server.channel());
  grpc::ClientContext info_context;
  vllm::ServerInfo info;
  ASSERT_TRUE(control->GetServerInfo(&info_context, {}, &info).ok());
  EXPECT_EQ(info.max_model_len(), 2048u);
  EXPECT_EQ(info.kv_block_size(), 16u);
  EXPECT_EQ(info.total_kv_blocks(), 256u);
  EXPECT_EQ(info.parallelism().world_size(), 1u);
  grpc::ClientContext quire_context;
  v1::ServerInfo same;
  ASSERT_TRUE(server.control().GetServerInfo(&quire_context, {}, &same).ok());
  EXPECT_EQ(info.instance_id(), same.instance_id());
  grpc::ClientContext model_context;
  vllm::ModelInfo model;
  ASSERT_TRUE(control->GetModelInfo(&model_context, {}, &model).ok());
  EXPECT_EQ(model.served_model_name(), "test-model");
  EXPECT_TRUE(model.supports_token_ids_input());
  EXPECT_FALSE(model.supports_lora());
  grpc::ClientContext paused_context;
  vllm::IsPausedResponse paused;
  ASSERT_TRUE(control->IsPaused(&paused_context, {}, &paused).ok());
  EXPECT_FALSE(paused.paused());
}

TEST(VllmTest, MethodsWithoutCounterpartSayWhatIsMissing) {
  TestServer server;
  const auto control = vllm::Control::NewStub(server.channel());
  grpc::ClientContext context;
  vllm::SleepResponse response;
  const grpc::Status status = control->Sleep(&context, {}, &response);
  EXPECT_EQ(status.error_code(), Code::UNIMPLEMENTED);
  EXPECT_EQ(Reason(status), "NOT_SERVED");
  EXPECT_THAT(status.error_message(), HasSubstr("does not give its memory back"));
  EXPECT_THAT(server.Metrics(),
              HasSubstr("code=\"UNIMPLEMENTED\",method=\"vllm.Control/Sleep\"} 1"));
}

struct BadCase {
  const char* name;
  std::function<void(vllm::GenerateRequest&)> spoil;
  Code code;
  const char* field;  // BadRequest's, or ErrorInfo's reason when the code is not INVALID_ARGUMENT
  const char* message;
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.name; }

// Values outside a range that quire.v1 has too: the field has this protocol's name.
std::vector<BadCase> RangeCases() {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Code code = Code::INVALID_ARGUMENT;
  return {
      {"temperature", [](auto& r) { r.set_temperature(-1); }, code, "temperature", "between"},
      {"temperature_nan", [](auto& r) { r.set_temperature(kNan); }, code, "temperature", "between"},
      {"top_k", [](auto& r) { r.mutable_sampling()->set_top_k(259); }, code, "sampling.top_k", ""},
      {"top_p", [](auto& r) { r.mutable_sampling()->set_top_p(1.5); }, code, "sampling.top_p", ""},
      {"min_p", [](auto& r) { r.mutable_sampling()->set_min_p(-1); }, code, "sampling.min_p", ""},
      {"presence", [](auto& r) { r.mutable_decoding()->set_presence_penalty(3); }, code,
       "decoding.presence_penalty", "between"},
      {"frequency", [](auto& r) { r.mutable_decoding()->set_frequency_penalty(-3); }, code,
       "decoding.frequency_penalty", "between"},
      {"repetition", [](auto& r) { r.mutable_decoding()->set_repetition_penalty(11); }, code,
       "decoding.repetition_penalty", "between"},
      {"bias", [](auto& r) { (*r.mutable_decoding()->mutable_logit_bias())[999] = 1; }, code,
       "decoding.logit_bias", "[0, 258)"},
      {"allowed", [](auto& r) { r.mutable_decoding()->add_allowed_token_ids(999); }, code,
       "decoding.allowed_token_ids", "[0, 258)"},
      {"max_tokens", [](auto& r) { r.mutable_stopping()->set_max_new_tokens(4000); }, code,
       "stopping.max_new_tokens", "at most 2045"},
      {"min_tokens", [](auto& r) { r.mutable_stopping()->set_min_new_tokens(9); }, code,
       "stopping.min_new_tokens", "max_tokens (4)"},
      {"stop_strings", [](auto& r) { r.mutable_stopping()->add_stop_strings(""); }, code,
       "stopping.stop_strings", "1 to 256"},
      {"stop_ids", [](auto& r) { r.mutable_stopping()->add_stop_token_ids(258); }, code,
       "stopping.stop_token_ids", "[0, 258)"},
      {"priority", [](auto& r) { r.set_priority(-101); }, code, "priority", "not -101"},
      {"no_prompt", [](auto& r) { r.clear_text(); }, code, "prompt", "missing"},
      {"empty_ids", [](auto& r) { r.mutable_token_ids(); }, code, "token_ids.ids", "empty"},
      {"request_id", [](auto& r) { r.set_request_id("a b"); }, code, "request_id", ""},
      {"session_id", [](auto& r) { r.set_session_id("a b"); }, code, "session_id", ""},
      {"bypass_and_session",
       [](auto& r) {
         r.set_session_id("s");
         r.mutable_kv()->set_bypass_prefix_cache(true);
       },
       code, "kv.bypass_prefix_cache", "set one of the two"},
      {"model", [](auto& r) { r.set_model("other"); }, Code::NOT_FOUND, "MODEL_NOT_FOUND", ""},
  };
}

// Fields of the protocol that have no counterpart.
std::vector<BadCase> ForeignCases() {
  const Code code = Code::INVALID_ARGUMENT;
  using R = vllm::GenerateRequest;
  const auto decoding = [](R& r) { return r.mutable_decoding(); };
  const auto response = [](R& r) { return r.mutable_response(); };
  return {
      {"truncate", [](R& r) { r.set_truncate_prompt_tokens(4); }, code, "truncate_prompt_tokens",
       "leave it out"},
      {"media", [](R& r) { r.add_media(); }, code, "media", "text alone"},
      {"lora", [](R& r) { r.set_lora_name("x"); }, code, "lora_name", "not served"},
      {"sequences", [](R& r) { r.mutable_sampling()->set_num_sequences(2); }, code,
       "sampling.num_sequences", "one answer"},
      {"json", [=](R& r) { decoding(r)->set_json("{"); }, code, "decoding.json", ""},
      {"regex", [=](R& r) { decoding(r)->set_regex("("); }, code, "decoding.regex", ""},
      {"choice", [=](R& r) { decoding(r)->mutable_choice(); }, code, "decoding.choice.choices",
       "1 to"},
      {"gbnf", [=](R& r) { decoding(r)->set_grammar("root ::= a"); }, code, "decoding.grammar",
       "rule a is not defined"},
      {"lark", [=](R& r) { decoding(r)->set_grammar("start: a"); }, code, "decoding.grammar",
       "lark: line 1, column 8: a is not defined"},
      {"tag", [=](R& r) { decoding(r)->set_structural_tag("a"); }, code, "decoding.structural_tag",
       ""},
      {"no_prompt", [=](R& r) { r.clear_prompt(); }, code, "prompt", "set text or token_ids"},
      {"prompt_ids", [=](R& r) { response(r)->set_prompt_token_ids(true); }, code,
       "response.prompt_token_ids", "Tokenize"},
      {"prompt_logprobs", [=](R& r) { response(r)->set_prompt_logprobs(true); }, code,
       "response.prompt_logprobs", ""},
      {"prompt_candidates", [=](R& r) { response(r)->mutable_prompt_candidates()->set_all(true); },
       code, "response.prompt_candidates", ""},
      {"candidates", [=](R& r) { response(r)->mutable_output_candidates()->set_top_n(1); }, code,
       "response.output_candidates", ""},
      {"salt", [](R& r) { r.mutable_kv()->set_cache_salt("x"); }, code, "kv.cache_salt", "tenant"},
      {"kv_transfer", [](R& r) { r.mutable_kv()->mutable_kv_transfer_params(); }, code,
       "kv.kv_transfer_params", ""},
      {"ec_transfer", [](R& r) { r.mutable_kv()->mutable_ec_transfer_params(); }, code,
       "kv.ec_transfer_params", ""},
      {"unknown", [](R& r) { r.GetReflection()->MutableUnknownFields(&r)->AddVarint(300, 1); },
       code, "field number 300", "does not know"},
      {"unknown_nested",
       [](R& r) {
         vllm::KVCacheParameters* kv = r.mutable_kv();
         kv->GetReflection()->MutableUnknownFields(kv)->AddVarint(9, 1);
       },
       code, "kv.field number 9", "does not know"},
  };
}

TestServer& Server() {
  static TestServer* server = new TestServer();
  return *server;
}

class VllmBadInputTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(VllmBadInputTest, IsRefusedWithItsFieldAndHasNoSideEffects) {
  const BadCase& bad = GetParam();
  vllm::GenerateRequest request = Ask(4);
  bad.spoil(request);
  const grpc::Status streamed = Stream(Server(), request).status;
  EXPECT_EQ(streamed.error_code(), bad.code) << streamed.error_message();
  EXPECT_EQ(bad.code == Code::INVALID_ARGUMENT ? ViolatedField(streamed) : Reason(streamed),
            bad.field);
  EXPECT_THAT(streamed.error_message(), HasSubstr(bad.message));
  vllm::GenerateResponse response;
  const grpc::Status unary = Generate(Server(), request, &response);
  EXPECT_EQ(unary.error_code(), streamed.error_code());
  EXPECT_EQ(unary.error_message(), streamed.error_message());
  Server().ExpectNothingLeft();
  EXPECT_TRUE(Stream(Server(), Ask(4)).status.ok());
}

const auto kName = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Ranges, VllmBadInputTest, ::testing::ValuesIn(RangeCases()), kName);
INSTANTIATE_TEST_SUITE_P(Foreign, VllmBadInputTest, ::testing::ValuesIn(ForeignCases()), kName);

TEST(VllmTest, RefusalsAreCountedByMethod) {
  TestServer server;
  vllm::GenerateRequest request = Ask(4);
  request.set_lora_name("x");
  Stream(server, request);
  EXPECT_TRUE(TestServer::Eventually([&] {
    return server.Metrics().find(
               "code=\"INVALID_ARGUMENT\",method=\"vllm.Inference/GenerateStream\"} 1") !=
           std::string::npos;
  })) << server.Metrics();
}

TEST(VllmTest, LowerPriorityNumbersRunFirst) {
  // One row: the gate holds the first request while two wait.
  TestServerOptions options;
  options.max_num_seqs = 1;
  TestServer server(options);
  server.gate().Allow(1);
  const auto stub = vllm::Inference::NewStub(server.channel());
  grpc::ClientContext contexts[3];
  std::vector<std::unique_ptr<grpc::ClientReader<vllm::GenerateResponse>>> readers;
  vllm::GenerateResponse frame;
  for (int i = 0; i < 3; ++i) {
    vllm::GenerateRequest request = Ask(50);
    request.set_priority(i == 1 ? 5 : -5);
    readers.push_back(stub->GenerateStream(&contexts[i], request));
    ASSERT_TRUE(readers.back()->Read(&frame));  // accepted: the order of arrival is fixed
  }
  server.gate().Allow(-1);
  // The third ends before the second has begun.
  while (readers[2]->Read(&frame)) {
  }
  EXPECT_TRUE(readers[2]->Finish().ok());
  EXPECT_TRUE(readers[0]->Read(&frame));
  while (readers[1]->Read(&frame)) {
  }
  EXPECT_TRUE(readers[1]->Finish().ok());
}

}  // namespace
}  // namespace quire

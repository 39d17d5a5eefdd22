// Tokenize, Detokenize, Control, health and reflection over real gRPC.
// Covers server/front/control_service.cc, server/front/health_service.cc,
// server/front/inference_service.cc, server/call/message_call.cc, server/call/raw_service.cc,
// server/front/reflection.cc
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <thread>

#include "grpc/health/v1/health.grpc.pb.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using Health = grpc::health::v1::Health;
using HealthResponse = grpc::health::v1::HealthCheckResponse;

TEST(TextCallsTest, TokenizesAsGenerateDoes) {
  TestServer server;
  v1::TokenizeRequest request;
  request.set_text("h\xC3\xA9");
  request.set_offsets(true);
  v1::TokenizeResponse response;
  grpc::ClientContext context;
  grpc::Status status = server.inference().Tokenize(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.token_ids(), ElementsAre(kTestBos, 'h', 0xC3, 0xA9));
  EXPECT_EQ(response.begin_size(), 4);
  EXPECT_EQ(response.end(1), 1u);

  request.set_add_special_tokens(false);
  request.set_text("a</s>");
  request.set_offsets(false);
  grpc::ClientContext second;
  status = server.inference().Tokenize(&second, request, &response);
  EXPECT_THAT(response.token_ids(), ElementsAre('a', kTestEos));
  EXPECT_EQ(response.begin_size(), 0);

  grpc::ClientContext third;
  status = server.inference().Tokenize(&third, {}, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ViolatedField(status), "input");
}

TEST(TextCallsTest, DetokenizesBytesAndReplacesInvalidUtf8) {
  TestServer server;
  v1::DetokenizeRequest request;
  for (const uint32_t id : {256u, 0x68u, 0xC3u, 0xA9u, 0xFFu, 257u}) request.add_token_ids(id);
  v1::DetokenizeResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(server.inference().Detokenize(&context, request, &response).ok());
  EXPECT_EQ(response.text(), "h\xC3\xA9\xEF\xBF\xBD");
  request.set_skip_special_tokens(false);
  grpc::ClientContext second;
  ASSERT_TRUE(server.inference().Detokenize(&second, request, &response).ok());
  EXPECT_EQ(response.text(), "<s>h\xC3\xA9\xEF\xBF\xBD</s>");
  request.add_token_ids(258);
  grpc::ClientContext third;
  const grpc::Status status = server.inference().Detokenize(&third, request, &response);
  EXPECT_EQ(ViolatedField(status), "token_ids");
}

// --skip-tokenizer-init: ids in and out, and what needs text is refused by name.
TEST(TextCallsTest, WithoutATokenizerServesTokenIdsOnly) {
  TestServerOptions options;
  options.tokenizer = false;
  TestServer server(options);
  v1::GenerateRequest ids;
  ids.mutable_token_ids()->add_ids(5);
  ids.mutable_stop()->set_max_tokens(3);
  const StreamedOutput streamed = Stream(server.inference(), ids);
  EXPECT_TRUE(streamed.status.ok()) << streamed.status.error_message();
  EXPECT_EQ(streamed.text, "");
  EXPECT_THAT(streamed.ids, ElementsAre(97u, 98u, 99u));

  v1::GenerateRequest text;
  text.set_text("hi");
  v1::GenerateRequest chat;
  chat.mutable_chat()->add_messages()->set_role("user");
  v1::GenerateRequest stop = ids;
  stop.mutable_stop()->add_stop("x");
  v1::GenerateRequest text_only = ids;
  text_only.mutable_output()->set_token_ids(false);
  for (const v1::GenerateRequest& request : {text, chat, stop, text_only}) {
    const grpc::Status status = Stream(server.inference(), request).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr("no tokenizer"));
  }
  grpc::ClientContext first, second;
  v1::TokenizeRequest tokenize;
  tokenize.set_text("hi");
  v1::TokenizeResponse tokenized;
  EXPECT_EQ(server.inference().Tokenize(&first, tokenize, &tokenized).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  v1::DetokenizeRequest detokenize;
  detokenize.add_token_ids(5);
  v1::DetokenizeResponse detokenized;
  EXPECT_EQ(server.inference().Detokenize(&second, detokenize, &detokenized).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST(ControlTest, ReturnsServerModelAndMemoryFacts) {
  TestServer server;
  grpc::ClientContext contexts[4];
  v1::ServerInfo info;
  ASSERT_TRUE(server.control().GetServerInfo(&contexts[0], {}, &info).ok());
  EXPECT_THAT(info.models(), ElementsAre("test-model"));
  EXPECT_EQ(info.state(), v1::ServerInfo::STATE_READY);
  EXPECT_EQ(info.max_running_requests(), 64u);
  EXPECT_GT(info.uptime_seconds(), 0);
  EXPECT_EQ(info.instance_id().size(), 16u);
  v1::ModelInfo model;
  ASSERT_TRUE(server.control().GetModelInfo(&contexts[1], {}, &model).ok());
  EXPECT_EQ(model.vocab_size(), static_cast<uint32_t>(kTestVocab));
  EXPECT_EQ(model.max_model_len(), 2048u);
  EXPECT_EQ(model.num_blocks(), 256u);
  EXPECT_THAT(model.eos_token_ids(), ElementsAre(kTestEos));
  EXPECT_FALSE(model.has_chat_template());
  v1::MemoryPlan plan;
  ASSERT_TRUE(server.control().GetMemoryPlan(&contexts[2], {}, &plan).ok());
  EXPECT_EQ(plan.total_bytes(), 3000u);
  EXPECT_EQ(plan.kv_tokens(), 256u * 16);
  v1::GetModelInfoRequest other;
  other.set_model("other");
  EXPECT_EQ(server.control().GetModelInfo(&contexts[3], other, &model).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST(ControlTest, LoadShowsRunningAndWaiting) {
  TestServerOptions options;
  options.max_num_seqs = 1;
  TestServer server(options);
  server.gate().Allow(1);
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] { (void)Stream(server.inference(), AskFor(2)); });
  }
  EXPECT_TRUE(TestServer::Eventually([&] {
    const v1::Load load = server.Load();
    return load.running_requests() == 1 && load.waiting_requests() == 2 &&
           load.open_streams() == 3 && load.free_blocks() < load.total_blocks();
  }));
  server.gate().Allow(-1);
  for (std::thread& client : clients) client.join();
  server.ExpectNothingLeft();
  EXPECT_EQ(server.Load().generated_tokens(), 6u);
}

TEST(ControlTest, AbortEndsTheNamedRequests) {
  TestServer server;
  server.gate().Allow(3);
  std::vector<std::thread> clients;
  grpc::Status ends[3];
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&, i] {
      v1::GenerateRequest request = AskFor(1000);
      request.set_request_id("r" + std::to_string(i));
      ends[i] = Stream(server.inference(), request).status;
    });
  }
  // A request that arrives after the third step waits in the queue, where Abort also finds it.
  EXPECT_TRUE(TestServer::Eventually([&] {
    const v1::Load load = server.Load();
    return load.running_requests() + load.waiting_requests() == 3;
  }));
  v1::AbortRequest abort;
  v1::AbortResponse aborted;
  grpc::ClientContext contexts[3];
  EXPECT_EQ(ViolatedField(server.control().Abort(&contexts[0], abort, &aborted)), "request_ids");
  abort.add_request_ids("r0");
  abort.add_request_ids("unknown");
  ASSERT_TRUE(server.control().Abort(&contexts[1], abort, &aborted).ok());
  EXPECT_EQ(aborted.aborted(), 1u);
  clients[0].join();
  EXPECT_EQ(ends[0].error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(Reason(ends[0]), "ABORTED");
  abort.set_all(true);
  ASSERT_TRUE(server.control().Abort(&contexts[2], abort, &aborted).ok());
  EXPECT_EQ(aborted.aborted(), 2u);
  clients[1].join();
  clients[2].join();
  EXPECT_EQ(ends[1].error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(ends[2].error_code(), grpc::StatusCode::CANCELLED);
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
}

v1::DrainResponse Drain(TestServer& server, bool exit_when_idle) {
  grpc::ClientContext context;
  v1::DrainRequest request;
  request.set_exit_when_idle(exit_when_idle);
  v1::DrainResponse response;
  const grpc::Status status = server.control().Drain(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

grpc::Status Undrain(TestServer& server, v1::UndrainResponse* response) {
  grpc::ClientContext context;
  return server.control().Undrain(&context, {}, response);
}

v1::ServerInfo::State StateOf(TestServer& server) {
  grpc::ClientContext context;
  v1::ServerInfo info;
  EXPECT_TRUE(server.control().GetServerInfo(&context, {}, &info).ok());
  return info.state();
}

HealthResponse::ServingStatus CheckHealth(TestServer& server, const std::string& service) {
  const auto stub = Health::NewStub(server.channel());
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  HealthResponse response;
  const grpc::Status status = stub->Check(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return HealthResponse::SERVICE_UNKNOWN;
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.status();
}

TEST(ControlTest, DrainRefusesNewWorkAndLetsRunningWorkFinish) {
  TestServer server;
  server.gate().Allow(2);
  grpc::ClientContext context;
  const auto running = server.inference().Generate(&context, AskFor(10));
  v1::GenerateResponse frame;
  ASSERT_TRUE(running->Read(&frame));
  EXPECT_TRUE(TestServer::Eventually([&] { return server.Load().running_requests() == 1; }));
  EXPECT_EQ(CheckHealth(server, ""), HealthResponse::SERVING);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Drain(server, i == 1).running_requests(), 1u);
    EXPECT_EQ(server.front().ExitRequested(), i == 1);
  }
  EXPECT_EQ(CheckHealth(server, ""), HealthResponse::NOT_SERVING);
  server.front().SetServing(true);  // a healthy engine does not undo a drain
  EXPECT_EQ(CheckHealth(server, "quire.v1.Inference"), HealthResponse::NOT_SERVING);
  const grpc::Status refused = Stream(server.inference(), AskFor(1)).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Reason(refused), "DRAINING");
  EXPECT_GT(RetrySeconds(refused), 0);
  EXPECT_EQ(StateOf(server), v1::ServerInfo::STATE_DRAINING);
  server.gate().Allow(-1);
  int tokens = 0;
  while (running->Read(&frame)) tokens += frame.tokens().token_ids_size();
  EXPECT_TRUE(running->Finish().ok());
  EXPECT_EQ(tokens, 10);
}

TEST(ControlTest, UndrainAcceptsNewWorkAndTurnsHealthOn) {
  TestServer server;
  v1::UndrainResponse undrained;
  ASSERT_TRUE(Undrain(server, &undrained).ok());
  EXPECT_FALSE(undrained.was_draining());
  Drain(server, false);
  EXPECT_EQ(Reason(Stream(server.inference(), AskFor(1)).status), "DRAINING");
  EXPECT_EQ(CheckHealth(server, ""), HealthResponse::NOT_SERVING);

  ASSERT_TRUE(Undrain(server, &undrained).ok());
  EXPECT_TRUE(undrained.was_draining());
  EXPECT_EQ(CheckHealth(server, ""), HealthResponse::SERVING);
  EXPECT_EQ(StateOf(server), v1::ServerInfo::STATE_READY);
  EXPECT_FALSE(server.front().Draining());
  EXPECT_TRUE(Stream(server.inference(), AskFor(3)).status.ok());
}

TEST(ControlTest, UndrainDoesNotHideAnUnhealthyEngine) {
  TestServer server;
  Drain(server, false);
  server.front().SetServing(false);
  v1::UndrainResponse undrained;
  ASSERT_TRUE(Undrain(server, &undrained).ok());
  EXPECT_EQ(CheckHealth(server, ""), HealthResponse::NOT_SERVING);
  server.front().SetServing(true);
  EXPECT_EQ(CheckHealth(server, ""), HealthResponse::SERVING);
}

TEST(ControlTest, UndrainIsRefusedOnceTheServerIsEnding) {
  for (const bool by_client : {true, false}) {
    TestServer server;
    by_client ? static_cast<void>(Drain(server, true)) : server.front().BeginExit();
    v1::UndrainResponse undrained;
    const grpc::Status status = Undrain(server, &undrained);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(Reason(status), "EXITING");
    EXPECT_EQ(server.front().Draining(), by_client);
  }
}

TEST(HealthTest, AnswersForEachServiceAndWatchFollows) {
  TestServer server;
  for (const char* name : {"", "quire.v1.Inference", "quire.v1.Control", "quire.v1.Sessions"}) {
    EXPECT_EQ(CheckHealth(server, name), HealthResponse::SERVING) << name;
  }
  EXPECT_EQ(CheckHealth(server, "no.such.Service"), HealthResponse::SERVICE_UNKNOWN);
  const auto stub = Health::NewStub(server.channel());
  grpc::ClientContext context;
  const auto watch = stub->Watch(&context, {});
  HealthResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthResponse::SERVING);
  server.front().SetServing(false);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthResponse::NOT_SERVING);
  EXPECT_EQ(CheckHealth(server, "quire.v1.Inference"), HealthResponse::NOT_SERVING);
  server.front().SetServing(true);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthResponse::SERVING);
  context.TryCancel();
}

TEST(HealthTest, PolicyDistinguishesIdleBusyHungAndDead) {
  constexpr int64_t kSecond = 1'000'000'000;
  EngineStats stats;
  EXPECT_TRUE(IsHealthy(stats, 1000 * kSecond, 10));  // idle since the start
  stats.last_retired_ns = 5 * kSecond;
  EXPECT_TRUE(IsHealthy(stats, 1000 * kSecond, 10));  // idle for long
  stats.work_waiting = true;
  stats.work_since_ns = 995 * kSecond;
  EXPECT_TRUE(IsHealthy(stats, 1000 * kSecond, 10));   // work arrived recently
  EXPECT_TRUE(IsHealthy(stats, 1005 * kSecond, 10));   // at the limit
  EXPECT_FALSE(IsHealthy(stats, 1006 * kSecond, 10));  // no step for longer than the limit
  stats.last_retired_ns = 1004 * kSecond;
  EXPECT_TRUE(IsHealthy(stats, 1006 * kSecond, 10));  // busy
  stats.recovering = true;
  EXPECT_FALSE(IsHealthy(stats, 1006 * kSecond, 10));  // no workers
  stats.recovering = false;
  stats.fault = "worker 0 died";
  EXPECT_FALSE(IsHealthy(stats, 1006 * kSecond, 10));
  stats.work_waiting = false;
  EXPECT_FALSE(IsHealthy(stats, 1006 * kSecond, 10));
}

TEST(ReflectionTest, ListsServicesAndDescribesThem) {
  TestServer server;
  using Reflection = grpc::reflection::v1::ServerReflection;
  const auto stub = Reflection::NewStub(server.channel());
  grpc::ClientContext context;
  const auto stream = stub->ServerReflectionInfo(&context);
  grpc::reflection::v1::ServerReflectionRequest request;
  grpc::reflection::v1::ServerReflectionResponse response;
  request.set_list_services("");
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Read(&response));
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service()) {
    names.push_back(service.name());
  }
  EXPECT_THAT(names,
              IsSupersetOf({"quire.v1.Inference", "quire.v1.Control", "quire.v1.Sessions",
                            "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"}));
  // The returned files alone build a pool that has every method.
  google::protobuf::DescriptorPool pool;
  for (const std::string& name : names) {
    request.set_file_containing_symbol(name);
    ASSERT_TRUE(stream->Write(request));
    ASSERT_TRUE(stream->Read(&response));
    for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto file;
      ASSERT_TRUE(file.ParseFromString(bytes));
      if (pool.FindFileByName(file.name()) == nullptr) {
        ASSERT_NE(pool.BuildFile(file), nullptr);
      }
    }
  }
  EXPECT_NE(pool.FindMethodByName("quire.v1.Inference.Generate"), nullptr);
  EXPECT_NE(pool.FindMethodByName("quire.v1.Sessions.Import"), nullptr);
  request.set_file_by_filename("quire/v1/control.proto");
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.file_descriptor_response().file_descriptor_proto_size(), 1);
  request.set_file_containing_symbol("no.such.Thing");
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(ReflectionTest, CanBeTurnedOff) {
  TestServerOptions options;
  options.front.reflection = false;
  TestServer server(options);
  const auto stub = grpc::reflection::v1::ServerReflection::NewStub(server.channel());
  grpc::ClientContext context;
  const auto stream = stub->ServerReflectionInfo(&context);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace quire

// vllm.grpc.engine.VllmEngine over real gRPC, by the stubs of its own protocol.
// Covers server/wire/vllm_engine/vllm_service.cc, server/wire/vllm_engine/vllm_generate.cc,
// server/wire/vllm_engine/vllm_frames.cc, server/wire/vllm_engine/vllm_request.cc,
// server/wire/vllm_engine/vllm_streams.cc, server/wire/stream_member.cc
#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "field/vllm_engine.grpc.pb.h"
#include "tests/server/log_capture.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

namespace wire = ::vllm::grpc::engine;
namespace smg = ::smg::grpc::common;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<uint32_t> Bytes(const std::string& text) {
  std::vector<uint32_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

template <typename Ids>
std::string Text(const Ids& ids) {
  std::string text;
  for (const uint32_t id : ids) text += id < 256 ? std::string(1, static_cast<char>(id)) : "<>";
  return text;
}

wire::GenerateRequest Ask(const std::string& prompt, uint32_t max_tokens, bool stream = true) {
  wire::GenerateRequest request;
  for (const uint32_t id : Bytes(prompt)) request.mutable_tokenized()->add_input_ids(id);
  request.mutable_sampling_params()->set_max_tokens(max_tokens);
  request.mutable_sampling_params()->set_temperature(0);
  request.set_stream(stream);
  return request;
}

struct Answer {
  grpc::Status status;
  std::vector<wire::GenerateStreamChunk> chunks;
  std::vector<wire::GenerateComplete> completes;

  // The text of the chunks of one output.
  std::string ChunkText(uint32_t index = 0) const {
    std::string text;
    for (const auto& chunk : chunks) {
      if (chunk.index() == index) text += Text(chunk.token_ids());
    }
    return text;
  }
  const wire::GenerateComplete& Complete(uint32_t index = 0) const {
    for (const auto& complete : completes) {
      if (complete.index() == index) return complete;
    }
    ADD_FAILURE() << "no complete of output " << index;
    return wire::GenerateComplete::default_instance();
  }
};

class VllmEngineTest : public ::testing::Test {
 protected:
  void Serve(TestServerOptions options = {}) {
    server_ = std::make_unique<TestServer>(std::move(options));
    stub_ = wire::VllmEngine::NewStub(server_->channel());
  }
  Answer Generate(const wire::GenerateRequest& request) {
    if (server_ == nullptr) Serve();
    Answer answer;
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, request);
    for (wire::GenerateResponse response; reader->Read(&response);) {
      if (response.has_chunk()) answer.chunks.push_back(response.chunk());
      if (response.has_complete()) answer.completes.push_back(response.complete());
    }
    answer.status = reader->Finish();
    return answer;
  }
  // The message of a refusal with INVALID_ARGUMENT.
  std::string Refused(const wire::GenerateRequest& request) {
    const Answer answer = Generate(request);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_TRUE(answer.chunks.empty() && answer.completes.empty());
    return answer.status.error_message();
  }

  std::unique_ptr<TestServer> server_;
  std::unique_ptr<wire::VllmEngine::Stub> stub_;
};

TEST_F(VllmEngineTest, StreamsChunksAndThenAllIdsAgain) {
  const Answer answer = Generate(Ask("hi", 25));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.ChunkText(), "abcdefghijabcdefghijabcde");
  EXPECT_EQ(answer.chunks.back().completion_tokens(), 25u);
  EXPECT_EQ(answer.chunks.front().prompt_tokens(), 2u);
  ASSERT_EQ(answer.completes.size(), 1u);
  EXPECT_EQ(Text(answer.Complete().output_ids()), answer.ChunkText());
  EXPECT_EQ(answer.Complete().finish_reason(), "length");
  EXPECT_EQ(answer.Complete().completion_tokens(), 25u);
  EXPECT_EQ(answer.Complete().prompt_tokens(), 2u);
  server_->ExpectNothingLeft();
}

TEST_F(VllmEngineTest, WithoutStreamOneMessageHasAll) {
  const Answer answer = Generate(Ask("hi", 12, /*stream=*/false));
  ASSERT_TRUE(answer.status.ok());
  EXPECT_TRUE(answer.chunks.empty());
  EXPECT_EQ(Text(answer.Complete().output_ids()), "abcdefghijab");
}

TEST_F(VllmEngineTest, NamesWhatEndedTheOutput) {
  wire::GenerateRequest request = Ask("hi", 25, false);
  request.mutable_sampling_params()->add_stop("de");
  wire::GenerateComplete complete = Generate(request).Complete();
  EXPECT_EQ(complete.finish_reason(), "stop");
  EXPECT_EQ(complete.matched_stop_str(), "de");
  EXPECT_EQ(Text(complete.output_ids()), "abcde") << "the ids reach through the stop string";

  request = Ask("hi", 25, false);
  request.mutable_sampling_params()->add_stop_token_ids('c');
  complete = Generate(request).Complete();
  EXPECT_EQ(complete.finish_reason(), "stop");
  EXPECT_EQ(complete.matched_token_id(), static_cast<uint32_t>('c'));
  EXPECT_EQ(Text(complete.output_ids()), "abc");

  TestServerOptions options;
  options.script_ids = {'a', kTestEos};
  Serve(std::move(options));
  complete = Generate(Ask("hi", 25, false)).Complete();
  EXPECT_EQ(complete.finish_reason(), "stop");
  EXPECT_EQ(complete.matched_stop_case(), wire::GenerateComplete::MATCHED_STOP_NOT_SET);
  EXPECT_THAT(complete.output_ids(), ElementsAre('a', kTestEos));
}

TEST_F(VllmEngineTest, ATextIsTokenisedWithItsSpecialTokens) {
  wire::GenerateRequest request = Ask("", 3, false);
  request.set_text("hi");
  EXPECT_EQ(Generate(request).Complete().prompt_tokens(), 3u);  // <s>hi
}

TEST_F(VllmEngineTest, OutputsOfOneRequestShareItsPrompt) {
  for (const bool stream : {true, false}) {
    Serve();
    wire::GenerateRequest request = Ask(std::string(40, 'p'), 20, stream);
    request.mutable_sampling_params()->set_n(3);
    const Answer answer = Generate(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    ASSERT_EQ(answer.completes.size(), 3u);
    for (uint32_t k = 0; k < 3; ++k) {
      EXPECT_EQ(Text(answer.Complete(k).output_ids()), "abcdefghijabcdefghij");
      EXPECT_EQ(answer.ChunkText(k), stream ? "abcdefghijabcdefghij" : "");
      // Two full blocks of 16 tokens: the others wait for the first one's KV.
      EXPECT_EQ(answer.Complete(k).cached_tokens(), k == 0 ? 0u : 32u);
    }
    server_->ExpectNothingLeft();
  }
}

TEST_F(VllmEngineTest, GivesTheLogProbabilityOfTheDrawnToken) {
  wire::GenerateRequest request = Ask("hi", 3);
  request.mutable_sampling_params()->set_logprobs(0);
  request.mutable_sampling_params()->set_temperature(0.7f);
  Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  // The script's log probability of output token k is -k - 0.5.
  EXPECT_THAT(answer.Complete().output_logprobs().token_logprobs(),
              ElementsAre(-0.5f, -1.5f, -2.5f));
  EXPECT_THAT(answer.Complete().output_logprobs().token_ids(), ElementsAreArray(Bytes("abc")));
  EXPECT_EQ(answer.Complete().output_logprobs().top_logprobs_size(), 0);

  // The script's next likely tokens are those after the drawn one, each less likely by 1.
  for (const bool stream : {true, false}) {
    request.mutable_sampling_params()->set_logprobs(2);
    request.set_stream(stream);
    answer = Generate(request);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    ASSERT_EQ(answer.Complete().output_logprobs().top_logprobs_size(), 3);
    const wire::TopLogProbs& second = answer.Complete().output_logprobs().top_logprobs(1);
    EXPECT_THAT(second.token_ids(), ElementsAre('b', 'c'));
    EXPECT_THAT(second.values(), ElementsAre(-1.5f, -2.5f));
  }
}

TEST_F(VllmEngineTest, RefusesByNameWhatItCannotHonour) {
  using Edit = std::function<void(wire::GenerateRequest*)>;
  const auto sampling = [](auto edit) -> Edit {
    return [edit](wire::GenerateRequest* request) { edit(request->mutable_sampling_params()); };
  };
  using Params = wire::SamplingParams*;
  const std::vector<std::pair<std::string, Edit>> cases = {
      {"sampling_params.json_schema: ", sampling([](Params p) { p->set_json_schema("{"); })},
      {"sampling_params.regex: ", sampling([](Params p) { p->set_regex("("); })},
      {"sampling_params.grammar: ", sampling([](Params p) { p->set_grammar("root ::= x"); })},
      {"sampling_params.grammar: lark: line 1, column 8: x is not defined",  // no "::="
       sampling([](Params p) { p->set_grammar("start: x"); })},
      {"sampling_params.structural_tag: ", sampling([](Params p) { p->set_structural_tag("{}"); })},
      {"sampling_params.choice: ",
       sampling([](Params p) { p->mutable_choice()->add_choices(""); })},
      {"sampling_params.prompt_logprobs: ", sampling([](Params p) { p->set_prompt_logprobs(0); })},
      {"sampling_params.truncate_prompt_tokens: ",
       sampling([](Params p) { p->set_truncate_prompt_tokens(3); })},
      {"sampling_params.logprobs: must be ", sampling([](Params p) { p->set_logprobs(21); })},
      {"sampling_params.logprobs: must be ", sampling([](Params p) { p->set_logprobs(-1); })},
      {"sampling_params.n: must be at most 64", sampling([](Params p) { p->set_n(65); })},
      {"sampling_params.max_tokens: ", sampling([](Params p) { p->set_max_tokens(0); })},
      {"sampling_params.temperature: ", sampling([](Params p) { p->set_temperature(-1); })},
      {"sampling_params.top_p: ", sampling([](Params p) { p->set_top_p(1.5f); })},
      {"sampling_params.min_tokens: ", sampling([](Params p) { p->set_min_tokens(9); })},
      {"sampling_params.logit_bias",
       sampling([](Params p) { (*p->mutable_logit_bias())[-1] = 1; })},
      {"kv_transfer_params: ",
       [](wire::GenerateRequest* r) { r->mutable_kv_transfer_params()->set_remote_port(1); }},
      {"kv_transfer_params_json: ",
       [](wire::GenerateRequest* r) { r->set_kv_transfer_params_json("{}"); }},
      {"data_parallel_rank: ", [](wire::GenerateRequest* r) { r->set_data_parallel_rank(1); }},
      {"mm_inputs: ", [](wire::GenerateRequest* r) { r->mutable_mm_inputs()->add_mm_hashes("x"); }},
      {"extra_mm_inputs: ", [](wire::GenerateRequest* r) { r->add_extra_mm_inputs(); }},
      {"media_refs: ", [](wire::GenerateRequest* r) { r->mutable_media_refs()->add_items(); }},
      {"input: missing", [](wire::GenerateRequest* r) { r->clear_input(); }},
      {"tokenized.input_ids: the prompt is empty",
       [](wire::GenerateRequest* r) { r->mutable_tokenized()->clear_input_ids(); }},
      {"tokenized.input_ids: id 258 at index 2",
       [](wire::GenerateRequest* r) { r->mutable_tokenized()->add_input_ids(kTestVocab); }},
      {"sampling_params.max_tokens: ", sampling([](Params p) { p->set_max_tokens(5000); })},
      {"tokenized.input_ids: ",
       [](wire::GenerateRequest* r) { *r = Ask(std::string(3000, 'p'), 5); }},
      {"text: has 3001 tokens",
       [](wire::GenerateRequest* r) { r->set_text(std::string(3000, 'p')); }},
      {"request_id: ", [](wire::GenerateRequest* r) { r->set_request_id("a b"); }},
      {"field number 100: ",
       [](wire::GenerateRequest* r) {
         r->GetReflection()->MutableUnknownFields(r)->AddVarint(100, 1);
       }},
      {"sampling_params.field number 99: ",
       sampling([](Params p) { p->GetReflection()->MutableUnknownFields(p)->AddVarint(99, 1); })},
  };
  for (const auto& [message, edit] : cases) {
    wire::GenerateRequest request = Ask("hi", 5);
    edit(&request);
    EXPECT_THAT(Refused(request), ::testing::StartsWith(message));
  }
  server_->ExpectNothingLeft();
}

TEST_F(VllmEngineTest, AZeroWithoutPresenceIsUnset) {
  wire::GenerateRequest request = Ask("hi", 3);
  wire::SamplingParams* const params = request.mutable_sampling_params();
  params->clear_temperature();
  params->set_top_p(0);
  params->set_repetition_penalty(0);
  params->set_n(0);
  params->set_seed(-1);
  request.set_data_parallel_rank(0);
  params->set_json_object(false);
  const Answer answer = Generate(request);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.completes.size(), 1u);
}

TEST_F(VllmEngineTest, WithoutMaxTokensAnOutputEndsAtTheContext) {
  TestServerOptions options;
  options.max_model_len = 64;
  Serve(std::move(options));
  wire::GenerateRequest request = Ask("hi", 1, false);
  request.mutable_sampling_params()->clear_max_tokens();
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.Complete().completion_tokens(), 62u);
  EXPECT_EQ(answer.Complete().finish_reason(), "length");
}

TEST_F(VllmEngineTest, AbortEndsAllOutputsOfARequest) {
  for (const uint32_t n : {1u, 3u}) {
    Serve();
    server_->gate().Allow(6);
    wire::GenerateRequest request = Ask("hi", 1000);
    request.set_request_id("to-abort");
    request.mutable_sampling_params()->set_n(n);
    Answer answer;
    std::thread client([&] { answer = Generate(request); });
    EXPECT_TRUE(
        TestServer::Eventually([&] { return server_->engine().Stats().generated_tokens >= n; }));
    grpc::ClientContext twice;
    wire::GenerateRequest same = request;
    const auto reader = stub_->Generate(&twice, same);
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::ALREADY_EXISTS);
    wire::AbortRequest abort;
    abort.add_request_ids("unknown");
    for (int i = 0; i < 1023; ++i) abort.add_request_ids("to-abort");
    wire::AbortResponse response;
    grpc::ClientContext context;
    const LogCapture log;
    EXPECT_TRUE(stub_->Abort(&context, abort, &response).ok());
    const auto lines = [&log] { return log.Lines("VllmEngine/Abort"); };
    EXPECT_TRUE(TestServer::Eventually([&] { return !lines().empty(); }));
    EXPECT_THAT(lines(), ElementsAre(HasSubstr("named=1024 found=" + std::to_string(n) + " ")));
    client.join();
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    ASSERT_EQ(answer.completes.size(), n);
    for (const auto& complete : answer.completes) EXPECT_EQ(complete.finish_reason(), "abort");
    server_->gate().Allow(-1);
    server_->ExpectNothingLeft();
  }
}

TEST_F(VllmEngineTest, AClientThatLeavesEndsAllOutputs) {
  Serve();
  server_->gate().Allow(8);
  wire::GenerateRequest request = Ask("hi", 1000);
  request.mutable_sampling_params()->set_n(4);
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, request);
  wire::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  server_->gate().Allow(-1);
  server_->ExpectNothingLeft();
}

TEST_F(VllmEngineTest, OneFailingOutputFailsTheCall) {
  Serve();
  server_->gate().SpoilSamples();
  wire::GenerateRequest request = Ask("hi", 10);
  request.mutable_sampling_params()->set_n(2);
  const Answer answer = Generate(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_TRUE(answer.completes.empty());
  server_->ExpectNothingLeft();
}

TEST_F(VllmEngineTest, TellsModelServerAndLoad) {
  TestServerOptions options;
  options.generation.temperature = 0.7f;
  options.generation.top_k = 20;
  Serve(std::move(options));
  grpc::ClientContext c1, c2, c3, c4;
  wire::GetModelInfoResponse model;
  ASSERT_TRUE(stub_->GetModelInfo(&c1, wire::GetModelInfoRequest(), &model).ok());
  EXPECT_TRUE(model.is_generation());
  EXPECT_EQ(model.max_context_length(), 2048u);
  EXPECT_EQ(model.vocab_size(), static_cast<uint32_t>(kTestVocab));
  EXPECT_EQ(model.default_sampling_params_json(), R"({"temperature":0.7,"top_k":20})");
  wire::GetServerInfoResponse info;
  ASSERT_TRUE(stub_->GetServerInfo(&c2, wire::GetServerInfoRequest(), &info).ok());
  EXPECT_EQ(info.block_size(), 16);
  EXPECT_EQ(info.data_parallel_size(), 1);
  EXPECT_EQ(info.max_num_seqs(), 64);
  wire::GetLoadsRequest ask;
  for (const char* section : {"core", "queues", "memory"}) ask.add_include(section);
  wire::GetLoadsResponse loads;
  ASSERT_TRUE(stub_->GetLoads(&c3, ask, &loads).ok());
  ASSERT_EQ(loads.loads_size(), 1);
  EXPECT_EQ(loads.loads(0).max_total_num_tokens(), 256 * 16);
  EXPECT_EQ(loads.loads(0).num_total_reqs(), 0);
  ask.set_dp_rank(1);
  EXPECT_EQ(stub_->GetLoads(&c4, ask, &loads).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(VllmEngineTest, ADrainingServerIsNotHealthy) {
  Serve();
  grpc::ClientContext c1, c2;
  wire::HealthCheckResponse health;
  ASSERT_TRUE(stub_->HealthCheck(&c1, wire::HealthCheckRequest(), &health).ok());
  EXPECT_TRUE(health.healthy());
  server_->front().StartDrain();
  ASSERT_TRUE(stub_->HealthCheck(&c2, wire::HealthCheckRequest(), &health).ok());
  EXPECT_FALSE(health.healthy());
  EXPECT_THAT(health.message(), HasSubstr("draining"));
  EXPECT_EQ(Generate(Ask("hi", 3)).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(VllmEngineTest, RefusesEmbeddingsAndProfilesItCannotMake) {
  Serve();
  grpc::ClientContext c1, c2, c3, c4;
  wire::EmbedResponse embedding;
  EXPECT_EQ(stub_->Embed(&c1, wire::EmbedRequest(), &embedding).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  smg::StartProfileRequest start;
  smg::ProfileResponse profile;
  start.set_num_steps(5);
  EXPECT_TRUE(stub_->StartProfile(&c2, start, &profile).ok());
  EXPECT_TRUE(profile.success());
  EXPECT_TRUE(stub_->StopProfile(&c3, smg::StopProfileRequest(), &profile).ok());
  start.set_output_dir("/tmp");
  const grpc::Status refused = stub_->StartProfile(&c4, start, &profile);
  EXPECT_THAT(refused.error_message(), ::testing::StartsWith("output_dir: "));
}

TEST_F(VllmEngineTest, TellsSubscribersWhichBlocksHaveKv) {
  Serve();
  grpc::ClientContext context;
  const auto events = stub_->SubscribeKvEvents(&context, smg::SubscribeKvEventsRequest());
  smg::KvEventBatch batch;
  ASSERT_TRUE(events->Read(&batch));
  ASSERT_TRUE(batch.has_snapshot());
  EXPECT_EQ(batch.snapshot().count(), 1u);
  ASSERT_EQ(batch.events_size(), 1);
  EXPECT_TRUE(batch.events(0).has_cleared());
  uint64_t sequence = batch.sequence_number();

  const std::string prompt(32, 'p');
  ASSERT_TRUE(Generate(Ask(prompt, 33)).status.ok());
  // 32 tokens of prompt and 32 of output with KV: the last token drawn has none.
  std::string stored;
  int64_t parent = 0;
  while (stored.size() < 64 && events->Read(&batch)) {
    EXPECT_EQ(batch.sequence_number(), ++sequence);
    for (const smg::KvCacheEvent& event : batch.events()) {
      ASSERT_TRUE(event.has_stored());
      EXPECT_EQ(event.stored().tier(), smg::KV_CACHE_TIER_DEVICE);
      EXPECT_EQ(event.stored().parent_block_hash(), parent);
      for (const smg::KvBlock& block : event.stored().blocks()) {
        EXPECT_EQ(block.block_size(), 16);
        stored += Text(block.token_ids());
        parent = block.block_hash();
      }
    }
  }
  EXPECT_EQ(stored, prompt + "abcdefghijabcdefghijabcdefghijab");

  grpc::ClientContext flush_context;
  smg::FlushCacheResponse flushed;
  ASSERT_TRUE(stub_->FlushCache(&flush_context, smg::FlushCacheRequest(), &flushed).ok());
  EXPECT_TRUE(flushed.success()) << flushed.message();
  ASSERT_TRUE(events->Read(&batch));
  EXPECT_TRUE(batch.events(0).has_removed() || batch.events(0).has_cleared());

  // One that misses nothing knows at once that it is subscribed.
  smg::SubscribeKvEventsRequest resume;
  resume.set_start_sequence_number(batch.sequence_number());
  grpc::ClientContext resume_context;
  const auto resumed = stub_->SubscribeKvEvents(&resume_context, resume);
  resumed->WaitForInitialMetadata();
  resume_context.TryCancel();
  resumed->Finish();

  // A subscriber behind a batch that is not kept starts over.
  smg::SubscribeKvEventsRequest stale;
  stale.set_start_sequence_number(5);
  grpc::ClientContext stale_context;
  EXPECT_EQ(stub_->SubscribeKvEvents(&stale_context, stale)->Finish().error_code(),
            grpc::StatusCode::OUT_OF_RANGE);
  context.TryCancel();
  events->Finish();
}

// Other protocols have methods of the same names.
TEST_F(VllmEngineTest, CallsAreCountedUnderTheirWholeNames) {
  Serve();
  grpc::ClientContext c1, c2, c3, c4;
  smg::FlushCacheResponse flushed;
  EXPECT_TRUE(stub_->FlushCache(&c1, smg::FlushCacheRequest(), &flushed).ok());
  v1::FlushCacheResponse own;
  EXPECT_TRUE(server_->control().FlushCache(&c2, v1::FlushCacheRequest(), &own).ok());
  EXPECT_FALSE(stub_->GetTokenizer(&c3, smg::GetTokenizerRequest())->Finish().ok());
  smg::SubscribeKvEventsRequest stale;
  stale.set_start_sequence_number(5);
  EXPECT_FALSE(stub_->SubscribeKvEvents(&c4, stale)->Finish().ok());
  for (const char* method : {"FlushCache", "vllm.grpc.engine.VllmEngine/FlushCache",
                             "vllm.grpc.engine.VllmEngine/GetTokenizer",
                             "vllm.grpc.engine.VllmEngine/SubscribeKvEvents"}) {
    EXPECT_TRUE(TestServer::Eventually([&] {
      return server_->Metrics().find("handling_seconds_count{model_name=\"test-model\",method=\"" +
                                     std::string(method) + "\"} 1\n") != std::string::npos;
    })) << method;
  }
  EXPECT_THAT(server_->Metrics(), HasSubstr("quire_field_calls{model_name=\"test-model\","
                                            "method=\"FlushCache\"} 0\n"));
}

TEST_F(VllmEngineTest, FlushWaitsForRunningRequestsAsLongAsItIsTold) {
  Serve();
  server_->gate().Allow(3);
  std::thread client([&] { EXPECT_TRUE(Generate(Ask("hi", 40)).status.ok()); });
  EXPECT_TRUE(
      TestServer::Eventually([&] { return server_->engine().Stats().generated_tokens > 0; }));
  grpc::ClientContext now, later, never;
  smg::FlushCacheRequest request;
  smg::FlushCacheResponse flushed;
  ASSERT_TRUE(stub_->FlushCache(&now, request, &flushed).ok());
  EXPECT_FALSE(flushed.success());
  std::thread flush([&] {
    request.set_timeout_s(60);
    EXPECT_TRUE(stub_->FlushCache(&later, request, &flushed).ok());
  });
  server_->gate().Allow(-1);
  flush.join();
  EXPECT_TRUE(flushed.success()) << flushed.message();
  client.join();
  request.set_timeout_s(-1);
  EXPECT_THAT(stub_->FlushCache(&never, request, &flushed).error_message(),
              ::testing::StartsWith("timeout_s: "));
}

}  // namespace
}  // namespace quire

// openengine.v1 over real gRPC, as its clients see it.
// Covers server/wire/openengine/openengine_format.cc,
// server/wire/openengine/openengine_services.cc, server/wire/openengine/kv_events_call.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "field/openengine.grpc.pb.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

namespace oe = openengine::v1;
using ::testing::HasSubstr;
using Code = grpc::StatusCode;

oe::GenerateRequest Ask(uint32_t max_tokens, const std::string& id = "one") {
  oe::GenerateRequest request;
  request.set_request_id(id);
  request.set_prompt("hi");
  request.mutable_stopping()->set_max_tokens(max_tokens);
  return request;
}

struct Streamed {
  grpc::Status status;
  std::string text;
  std::vector<uint32_t> ids;
  std::vector<double> logprobs;
  oe::GenerateResponse last;
};

Streamed Read(grpc::ClientReader<oe::GenerateResponse>* reader) {
  Streamed out;
  oe::GenerateResponse frame;
  while (reader->Read(&frame)) {
    out.text += frame.token().text();
    for (const oe::TokenInfo& token : frame.token().tokens()) {
      out.ids.push_back(token.token_id());
      if (token.has_logprob()) out.logprobs.push_back(token.logprob());
    }
    out.last = frame;
  }
  out.status = reader->Finish();
  return out;
}

using Metadata = std::vector<std::pair<std::string, std::string>>;

Streamed Stream(TestServer& server, const oe::GenerateRequest& request,
                const Metadata& metadata = {}) {
  const auto stub = oe::Inference::NewStub(server.channel());
  grpc::ClientContext context;
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  return Read(stub->Generate(&context, request).get());
}

TEST(OpenEngineTest, TokensThenTheFinishWithUsage) {
  TestServer server;  // says abcdefghij, over and over
  oe::GenerateRequest request = Ask(12);
  request.mutable_response()->set_return_output_logprobs(true);
  const Streamed out = Stream(server, request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.text, "abcdefghijab");
  EXPECT_EQ(out.ids,
            std::vector<uint32_t>({97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 97, 98}));
  ASSERT_EQ(out.logprobs.size(), 12u);
  EXPECT_FLOAT_EQ(static_cast<float>(out.logprobs[3]), -3.5f);
  EXPECT_EQ(out.last.request_id(), "one");
  EXPECT_TRUE(out.last.finished().has_output_index());
  EXPECT_EQ(out.last.finished().reason(), oe::FINISH_REASON_LENGTH);
  EXPECT_EQ(out.last.usage().prompt_tokens(), 3u);  // <s>hi
  EXPECT_EQ(out.last.usage().completion_tokens(), 12u);
  EXPECT_EQ(out.last.usage().total_tokens(), 15u);
  server.ExpectNothingLeft();
}

TEST(OpenEngineTest, EndsNameTheirCauseAndHideStopTokens) {
  TestServerOptions options;
  options.script_ids = {97, 98, 99, kTestEos};
  TestServer server(options);
  Streamed out = Stream(server, Ask(9));
  EXPECT_EQ(out.last.finished().stop_match().eos_token_id(), static_cast<uint32_t>(kTestEos));
  EXPECT_EQ(out.last.finished().reason(), oe::FINISH_REASON_STOP);

  oe::GenerateRequest request = Ask(9);
  request.mutable_stopping()->add_conditions()->set_stop_token_id(98);
  out = Stream(server, request);
  EXPECT_EQ(out.last.finished().stop_match().stop_token_id(), 98u);
  EXPECT_EQ(out.ids, std::vector<uint32_t>({97}));
  request.mutable_stopping()->set_include_stop_in_output(true);
  EXPECT_EQ(Stream(server, request).ids, std::vector<uint32_t>({97, 98}));
  // A stop token before min_tokens is a token like others.
  request.mutable_stopping()->set_include_stop_in_output(false);
  request.mutable_stopping()->set_min_tokens(2);
  EXPECT_EQ(Stream(server, request).ids, std::vector<uint32_t>({97, 98, 99, kTestEos}));

  request = Ask(9);
  request.mutable_stopping()->add_conditions()->set_stop_text("bc");
  out = Stream(server, request);
  EXPECT_EQ(out.last.finished().stop_match().stop_text(), "bc");
  EXPECT_EQ(out.text, "a");
}

TEST(OpenEngineTest, AFailureAfterAcceptanceIsAnEventOfAnOkCall) {
  TestServer server;
  server.gate().Allow(3);
  const auto stub = oe::Inference::NewStub(server.channel());
  const auto control = oe::Control::NewStub(server.channel());
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, Ask(1000, "long"));
  oe::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  grpc::ClientContext abort_context;
  oe::AbortRequest abort;
  abort.set_request_id("long");
  oe::AbortResponse aborted;
  ASSERT_TRUE(control->Abort(&abort_context, abort, &aborted).ok());
  EXPECT_EQ(aborted.status(), oe::ABORT_STATUS_ABORTED);
  server.gate().Allow(-1);
  const Streamed rest = Read(reader.get());
  EXPECT_TRUE(rest.status.ok()) << rest.status.error_message();
  EXPECT_EQ(rest.last.error().code(), oe::ERROR_CODE_CANCELLED);
  EXPECT_FALSE(rest.last.error().retryable());
  EXPECT_EQ(rest.last.request_id(), "long");
  grpc::ClientContext again_context;
  ASSERT_TRUE(control->Abort(&again_context, abort, &aborted).ok());
  EXPECT_EQ(aborted.status(), oe::ABORT_STATUS_ALREADY_FINISHED);
  server.ExpectNothingLeft();
}

TEST(OpenEngineTest, AnEngineFailureIsRetryable) {
  TestServer server;
  server.gate().Allow(3);
  const auto stub = oe::Inference::NewStub(server.channel());
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, Ask(1000));
  oe::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  server.gate().SpoilSamples();
  server.gate().Allow(-1);
  const Streamed rest = Read(reader.get());
  EXPECT_TRUE(rest.status.ok());
  EXPECT_EQ(rest.last.error().code(), oe::ERROR_CODE_INTERNAL);
  EXPECT_THAT(rest.last.error().message(), HasSubstr("not a number"));
}

TEST(OpenEngineTest, ARefusalBeforeAcceptanceIsAStatus) {
  TestServer server;
  server.gate().Allow(1);
  const auto stub = oe::Inference::NewStub(server.channel());
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, Ask(1000));
  oe::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  const Streamed twice = Stream(server, Ask(4));
  EXPECT_EQ(twice.status.error_code(), Code::ALREADY_EXISTS);
  context.TryCancel();
  server.gate().Allow(-1);
}

TEST(OpenEngineTest, PriorityComesInMetadata) {
  TestServerOptions options;
  options.max_num_seqs = 1;
  TestServer server(options);
  server.gate().Allow(1);
  const auto stub = oe::Inference::NewStub(server.channel());
  grpc::ClientContext contexts[3];
  std::vector<std::unique_ptr<grpc::ClientReader<oe::GenerateResponse>>> readers;
  oe::GenerateResponse frame;
  for (int i = 0; i < 3; ++i) {
    contexts[i].AddMetadata("openengine-priority", i == 1 ? "-5" : "5");
    readers.push_back(stub->Generate(&contexts[i], Ask(50, "p" + std::to_string(i))));
    const auto queued = static_cast<uint32_t>(i);
    ASSERT_TRUE(TestServer::Eventually([&] {
      const v1::Load load = server.Load();
      return load.waiting_requests() + load.running_requests() == queued + 1;
    }));
  }
  server.gate().Allow(-1);
  EXPECT_TRUE(Read(readers[2].get()).status.ok());
  // The second, of a lower priority, ran after the third.
  const Streamed second = Read(readers[1].get());
  EXPECT_EQ(second.last.usage().completion_tokens(), 50u);
}

TEST(OpenEngineTest, ControlTellsTheSettingsAndTheLoad) {
  TestServer server;
  const auto control = oe::Control::NewStub(server.channel());
  const auto call = [&](auto method, const auto& request, auto* response) {
    grpc::ClientContext context;
    const grpc::Status status = ((*control).*method)(&context, request, response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  };
  using Stub = oe::Control::Stub;
  oe::ServerInfo info;
  call(&Stub::GetServerInfo, oe::GetServerInfoRequest(), &info);
  EXPECT_EQ(info.engine_name(), "quire");
  EXPECT_EQ(info.engine_role(), oe::ENGINE_ROLE_AGGREGATED);
  EXPECT_EQ(info.schema_revision(), 1u);
  EXPECT_EQ(info.capacity().total_kv_blocks(), 256u);
  oe::GetModelInfoRequest of;
  of.set_model("test-model");
  oe::ModelInfo model;
  call(&Stub::GetModelInfo, of, &model);
  EXPECT_EQ(model.max_context_length(), 2048u);
  EXPECT_TRUE(model.generation().supports_priority());
  EXPECT_TRUE(model.generation().guided_decoding().supported());
  EXPECT_EQ(model.generation().guided_decoding().modes_size(), 5);
  oe::GetLoadRequest ranks;
  ranks.set_include_per_rank(true);
  oe::LoadInfo load;
  call(&Stub::GetLoad, ranks, &load);
  EXPECT_EQ(load.total_kv_blocks(), 256u);
  EXPECT_EQ(load.used_kv_blocks(), 0u);
  EXPECT_EQ(load.ranks_size(), 1);
  oe::HealthResponse health;
  call(&Stub::Health, oe::HealthRequest(), &health);
  EXPECT_EQ(health.state(), oe::HEALTH_STATE_READY);
  server.front().StartDrain();
  health.Clear();
  call(&Stub::Health, oe::HealthRequest(), &health);
  EXPECT_EQ(health.state(), oe::HEALTH_STATE_NOT_READY);
  oe::GetKvEventSourcesResponse sources;
  call(&Stub::GetKvEventSources, oe::GetKvEventSourcesRequest(), &sources);
  EXPECT_TRUE(sources.sources().empty());
}

TEST(OpenEngineTest, AdaptersAreAFailedPrecondition) {
  TestServer server;
  grpc::ClientContext context;
  oe::LoadLoraResponse response;
  const grpc::Status status =
      oe::Control::NewStub(server.channel())->LoadLora(&context, {}, &response);
  EXPECT_EQ(status.error_code(), Code::FAILED_PRECONDITION);
  EXPECT_EQ(Reason(status), "NOT_SERVED");
}

TEST(OpenEngineTest, KvEventsBeginWithASnapshotAndFollowTheBlocks) {
  TestServer server;
  oe::GenerateRequest first = Ask(1, "first");
  first.set_prompt(std::string(32, 'a'));  // <s> and 32 bytes: two whole blocks
  ASSERT_TRUE(Stream(server, first).status.ok());
  const auto control = oe::Control::NewStub(server.channel());
  grpc::ClientContext context;
  oe::SubscribeKvEventsRequest request;
  request.set_include_snapshot(true);
  const auto reader = control->SubscribeKvEvents(&context, request);
  oe::SubscribeKvEventsResponse response;
  // The first block's tokens; those behind it name their parent.
  std::string first_hash;
  int blocks = 0;
  while (blocks < 2 && reader->Read(&response)) {
    for (const oe::KvEvent& event : response.batch().events()) {
      for (const oe::KvBlockHash& hash : event.block_stored().block_hashes()) {
        EXPECT_EQ(hash.value().size(), 8u);
        EXPECT_EQ(hash.encoding(), "bytes");
        if (blocks++ == 0) {
          first_hash = hash.value();
          EXPECT_EQ(event.block_stored().token_ids(0), static_cast<uint32_t>(kTestBos));
          EXPECT_EQ(event.block_stored().token_ids(1), 97u);
        }
      }
      if (event.has_block_stored()) {
        EXPECT_EQ(event.block_stored().block_size(), 16u);
        EXPECT_EQ(event.block_stored().medium(), oe::STORAGE_MEDIUM_GPU);
      }
    }
  }
  EXPECT_EQ(blocks, 2);
  const uint64_t seen = response.batch().sequence_number();
  // Another prompt's blocks come as they are stored, with later numbers.
  oe::GenerateRequest second = Ask(1, "second");
  second.set_prompt(std::string(32, 'b'));
  ASSERT_TRUE(Stream(server, second).status.ok());
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_GT(response.batch().sequence_number(), seen);
  context.TryCancel();
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), Code::CANCELLED);
}

TEST(OpenEngineTest, ASubscriptionThatCannotBeHonouredIsRefused) {
  TestServer server;
  const auto control = oe::Control::NewStub(server.channel());
  const auto refused = [&](const oe::SubscribeKvEventsRequest& request) {
    grpc::ClientContext context;
    const auto reader = control->SubscribeKvEvents(&context, request);
    oe::SubscribeKvEventsResponse response;
    EXPECT_FALSE(reader->Read(&response));
    return reader->Finish();
  };
  oe::SubscribeKvEventsRequest request;
  EXPECT_EQ(ViolatedField(refused(request)), "include_snapshot");
  request.set_start_sequence_number(1);  // long gone
  EXPECT_EQ(refused(request).error_code(), Code::OUT_OF_RANGE);
  request.set_include_snapshot(true);
  EXPECT_EQ(ViolatedField(refused(request)), "start_sequence_number");
  request.clear_start_sequence_number();
  request.add_data_parallel_ranks(3);
  EXPECT_EQ(ViolatedField(refused(request)), "data_parallel_ranks");
}

struct BadCase {
  const char* name;
  std::function<void(oe::GenerateRequest&)> spoil;
  const char* field;
  const char* message;
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.name; }

std::vector<BadCase> BadCases() {
  using R = oe::GenerateRequest;
  const auto sampling = [](R& r) { return r.mutable_sampling(); };
  const auto response = [](R& r) { return r.mutable_response(); };
  return {
      {"no_id", [](R& r) { r.clear_request_id(); }, "request_id", "missing"},
      {"odd_id", [](R& r) { r.set_request_id("a b"); }, "request_id", ""},
      {"no_input", [](R& r) { r.clear_prompt(); }, "input", "missing"},
      {"temperature", [=](R& r) { sampling(r)->set_temperature(1e300); }, "sampling.temperature",
       "between"},
      {"top_k", [=](R& r) { sampling(r)->set_top_k(-1); }, "sampling.top_k", "at least 0"},
      {"top_p", [=](R& r) { sampling(r)->set_top_p(0); }, "sampling.top_p", "above 0"},
      {"max_tokens", [](R& r) { r.mutable_stopping()->set_max_tokens(4000); },
       "stopping.max_tokens", "at most 2045"},
      {"stop_text", [](R& r) { r.mutable_stopping()->add_conditions()->set_stop_text(""); },
       "stopping.conditions", "1 to 256"},
      {"stop_id", [](R& r) { r.mutable_stopping()->add_conditions()->set_stop_token_id(258); },
       "stopping.conditions", "[0, 258)"},
      {"no_condition", [](R& r) { r.mutable_stopping()->add_conditions(); },
       "stopping.conditions[0]", "empty"},
      {"sequences", [=](R& r) { sampling(r)->set_num_sequences(2); }, "sampling.num_sequences",
       "one answer"},
      {"no_sequences", [=](R& r) { sampling(r)->set_num_sequences(0); }, "sampling.num_sequences",
       ""},
      {"prompt_logprobs", [=](R& r) { response(r)->set_return_prompt_logprobs(true); },
       "response.return_prompt_logprobs", "output alone"},
      {"logprob_start", [=](R& r) { response(r)->set_prompt_logprob_start(0); },
       "response.prompt_logprob_start", ""},
      {"candidates", [=](R& r) { response(r)->mutable_output_candidates()->mutable_all(); },
       "response.output_candidates", ""},
      {"session", [](R& r) { r.mutable_kv()->mutable_session(); }, "kv.session", "engines"},
      {"salt", [](R& r) { r.mutable_kv()->set_cache_salt("x"); }, "kv.cache_salt", ""},
      {"guided", [](R& r) { r.mutable_guided(); }, "guided", "holds no format"},
      {"regex", [](R& r) { r.mutable_guided()->set_regex("("); }, "guided.regex", ""},
      {"choice", [](R& r) { r.mutable_guided()->mutable_choice(); }, "guided.choice.choices",
       "1 to"},
      {"tag", [](R& r) { r.mutable_guided()->set_structural_tag("{}"); }, "guided.structural_tag",
       "no tags"},
      {"backend",
       [](R& r) {
         r.mutable_guided()->set_regex("a");
         r.mutable_guided()->set_backend("x");
       },
       "guided.backend", ""},
      {"media", [](R& r) { r.add_media(); }, "media", ""},
      {"lora", [](R& r) { r.set_lora_name("x"); }, "lora_name", ""},
      {"extra", [](R& r) { (*r.mutable_extra()->mutable_fields())["knob"].set_bool_value(true); },
       "extra.knob", "no settings"},
      {"unknown", [](R& r) { r.GetReflection()->MutableUnknownFields(&r)->AddVarint(13, 1); },
       "field number 13", "does not know"},
  };
}

TestServer& Server() {
  static TestServer* server = new TestServer();
  return *server;
}

class OpenEngineBadInputTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(OpenEngineBadInputTest, IsRefusedWithItsFieldAndHasNoSideEffects) {
  const BadCase& bad = GetParam();
  oe::GenerateRequest request = Ask(4);
  bad.spoil(request);
  const grpc::Status status = Stream(Server(), request).status;
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT) << status.error_message();
  EXPECT_EQ(ViolatedField(status), bad.field);
  EXPECT_THAT(status.error_message(), HasSubstr(bad.message));
  Server().ExpectNothingLeft();
  EXPECT_TRUE(Stream(Server(), Ask(4)).status.ok());
}

const auto kName = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(All, OpenEngineBadInputTest, ::testing::ValuesIn(BadCases()), kName);

TEST(OpenEngineTest, ReservedMetadataIsUnderstoodOrRefused) {
  struct Case {
    Metadata metadata;
    std::string field;  // empty: accepted
  };
  const std::vector<Case> cases = {
      {{{"openengine-routing-key", "abc"}, {"openengine-target-dp-rank", "0"}}, ""},
      {{{"openengine-target-dp-rank", "1"}}, "openengine-target-dp-rank"},
      {{{"openengine-priority", "high"}}, "openengine-priority"},
      {{{"openengine-priority", "101"}}, "openengine-priority"},
      {{{"openengine-priority", "1"}, {"openengine-priority", "1"}}, "openengine-priority"},
      {{{"openengine-deadline", "1"}}, "openengine-deadline"},
  };
  for (const Case& each : cases) {
    const grpc::Status status = Stream(Server(), Ask(4), each.metadata).status;
    EXPECT_EQ(status.ok(), each.field.empty()) << status.error_message();
    if (!status.ok()) {
      EXPECT_EQ(ViolatedField(status), each.field);
    }
  }
}

}  // namespace
}  // namespace quire

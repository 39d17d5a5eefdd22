// GenerateBatch over real gRPC, with a worker that says the same to all items: each item's answer
// is the one that GenerateUnary gives, bad items fail alone, and the call's end ends its items.
// Covers server/batch/generate_items.cc, server/batch/batch_call.cc, server/answers/reply_run.cc,
// server/answers/answer_streams.cc, server/lines/item_status.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

using Results = std::map<uint32_t, v1::GenerateBatchResult>;

grpc::Status Ask(v1::Inference::Stub& stub, const v1::GenerateBatchRequest& request,
                 Results* results, grpc::ClientContext* context = nullptr) {
  grpc::ClientContext own;
  const auto reader = stub.GenerateBatch(context != nullptr ? context : &own, request);
  v1::GenerateBatchResult result;
  while (reader->Read(&result)) {
    EXPECT_FALSE(results->contains(result.index())) << "one result an item";
    (*results)[result.index()] = result;
  }
  return reader->Finish();
}

v1::GenerateResult AskAlone(v1::Inference::Stub& stub, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  v1::GenerateResult result;
  const grpc::Status status = stub.GenerateUnary(&context, request, &result);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return result;
}

// Removes the fields in which two calls with one request differ.
void ForgetTheCall(v1::GenerateResult* result) {
  result->clear_request_id();
  result->mutable_accepted()->clear_queue_position();
  result->mutable_accepted()->clear_predicted_first_token_seconds();
  const auto forget = [](v1::Finished* finished) {
    finished->clear_timings();
    finished->clear_residency();
    finished->mutable_usage()->clear_cached_tokens();
    if (finished->has_request_usage()) finished->mutable_request_usage()->clear_cached_tokens();
  };
  forget(result->mutable_finished());
  for (auto& answer : *result->mutable_further_answers()) forget(answer.mutable_finished());
}

TEST(GenerateBatchTest, EachItemIsAnsweredAsACallOfItsOwn) {
  TestServer server;
  v1::GenerateBatchRequest batch;
  for (uint32_t i = 0; i < 150; ++i) {  // more than are open at a time
    v1::GenerateRequest& item = *batch.add_requests();
    item = AskFor(1 + i % 12);
    item.mutable_sampling()->set_seed(i);
    item.mutable_output()->set_logprobs(i % 2 == 0);
    if (i % 10 == 3) {
      item.mutable_sampling()->set_temperature(1);
      item.set_n(3);
      item.set_best_of(4);
    }
  }
  Results results;
  const grpc::Status status = Ask(server.inference(), batch, &results);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(results.size(), 150u);
  for (auto& [index, result] : results) {
    ASSERT_FALSE(result.has_status()) << index << ": " << result.status().message();
    v1::GenerateResult alone =
        AskAlone(server.inference(), batch.requests(static_cast<int>(index)));
    ForgetTheCall(&alone);
    ForgetTheCall(result.mutable_result());
    EXPECT_EQ(result.result().DebugString(), alone.DebugString()) << index;
  }
  server.ExpectNothingLeft();
}

TEST(GenerateBatchTest, BadItemsFailAlone) {
  TestServer server;
  v1::GenerateBatchRequest batch;
  for (int i = 0; i < 10; ++i) *batch.add_requests() = AskFor(3);
  batch.mutable_requests(1)->mutable_sampling()->set_temperature(-1);
  batch.mutable_requests(2)->clear_text();
  batch.mutable_requests(3)->set_model("another");
  batch.mutable_requests(4)->mutable_token_ids()->add_ids(kTestVocab);
  batch.mutable_requests(5)->set_detach_seconds(1);
  batch.mutable_requests(6)->set_session_id("none");
  batch.mutable_requests(7)->set_n(2);
  batch.mutable_requests(7)->mutable_sampling()->set_temperature(0);
  batch.mutable_requests(8)->mutable_stop()->set_max_tokens(100'000);
  Results results;
  ASSERT_TRUE(Ask(server.inference(), batch, &results).ok());
  ASSERT_EQ(results.size(), 10u);
  const struct {
    uint32_t index;
    grpc::StatusCode code;
    const char* field;
    const char* reason;
  } kFaults[] = {
      {1, grpc::StatusCode::INVALID_ARGUMENT, "sampling.temperature", ""},
      {2, grpc::StatusCode::INVALID_ARGUMENT, "prompt", ""},
      {3, grpc::StatusCode::NOT_FOUND, "", "MODEL_NOT_FOUND"},
      {4, grpc::StatusCode::INVALID_ARGUMENT, "token_ids.ids", ""},
      {5, grpc::StatusCode::INVALID_ARGUMENT, "detach_seconds", ""},
      {6, grpc::StatusCode::NOT_FOUND, "", "SESSION_NOT_FOUND"},
      {7, grpc::StatusCode::INVALID_ARGUMENT, "n", ""},
      {8, grpc::StatusCode::INVALID_ARGUMENT, "stop.max_tokens", ""},
  };
  for (const auto& fault : kFaults) {
    const v1::GenerateBatchResult& result = results[fault.index];
    EXPECT_EQ(result.status().code(), static_cast<uint32_t>(fault.code)) << fault.index;
    EXPECT_EQ(result.status().field(), fault.field) << fault.index;
    EXPECT_EQ(result.status().reason(), fault.reason) << fault.index;
    EXPECT_FALSE(result.has_result()) << fault.index;
  }
  for (const uint32_t good : {0u, 9u}) EXPECT_EQ(results[good].result().text(), "abc");
  server.ExpectNothingLeft();
}

TEST(GenerateBatchTest, AnItemMayBeATurn) {
  TestServer server;
  v1::GenerateBatchRequest batch;
  for (const char* name : {"one", "two"}) {
    v1::GenerateRequest& item = *batch.add_requests();
    item = AskFor(3);
    item.set_session_id(name);
    item.set_create_session(true);
  }
  Results results;
  ASSERT_TRUE(Ask(server.inference(), batch, &results).ok());
  for (const uint32_t index : {0u, 1u}) {
    EXPECT_EQ(results[index].result().text(), "abc");
    EXPECT_EQ(results[index].result().finished().position(), 6u);  // BOS, "hi", "abc"
  }
}

TEST(GenerateBatchTest, ItemsOfOneIdFailAlone) {
  TestServer server;
  server.gate().Allow(0);
  v1::GenerateBatchRequest batch;
  for (int i = 0; i < 2; ++i) {
    *batch.add_requests() = AskFor(2);
    batch.mutable_requests(i)->set_request_id("same");
  }
  Results results;
  grpc::ClientContext context;
  const auto reader = server.inference().GenerateBatch(&context, batch);
  v1::GenerateBatchResult result;
  ASSERT_TRUE(reader->Read(&result));
  EXPECT_EQ(result.index(), 1u);
  EXPECT_EQ(result.status().code(), static_cast<uint32_t>(grpc::StatusCode::ALREADY_EXISTS));
  server.gate().Allow(-1);
  ASSERT_TRUE(reader->Read(&result));
  EXPECT_EQ(result.result().request_id(), "same");
  EXPECT_FALSE(reader->Read(&result));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST(GenerateBatchTest, ANumberThatNoBatchHasIsRefused) {
  TestServer server;
  for (const int count : {0, 1025}) {
    v1::GenerateBatchRequest batch;
    for (int i = 0; i < count; ++i) *batch.add_requests() = AskFor(1);
    Results results;
    const grpc::Status status = Ask(server.inference(), batch, &results);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(ViolatedField(status), "requests");
    EXPECT_THAT(status.error_message(), HasSubstr("not " + std::to_string(count)));
    EXPECT_TRUE(results.empty());
  }
}

TEST(GenerateBatchTest, AnAnswerThatIsTooLargeFailsAlone) {
  TestServer server({.front = {.max_reply_bytes = 80 << 10}, .num_blocks = 1024});
  v1::GenerateBatchRequest batch;
  *batch.add_requests() = AskFor(2000);
  *batch.add_requests() = AskFor(2);
  batch.mutable_requests(0)->mutable_output()->set_top_logprobs(20);
  Results results;
  ASSERT_TRUE(Ask(server.inference(), batch, &results).ok());
  EXPECT_EQ(results[0].status().reason(), "REPLY_TOO_LARGE");
  EXPECT_EQ(results[1].result().text(), "ab");
}

void AddLine(uint32_t number, const std::string& text, v1::GenerateBatchRequest* batch) {
  v1::RequestLine& line = *batch->add_lines();
  line.set_number(number);
  line.set_text(text);
}

TEST(GenerateBatchTest, LinesAreAnsweredAsLines) {
  TestServer server;
  v1::GenerateBatchRequest batch;
  const std::string text = R"("request":{"text":"a","stop":{"max_tokens":2}})";
  AddLine(3, R"({"custom_id":"one",)" + text + "}", &batch);
  AddLine(4, "{\"custom_id\":\"\xff\"," + text + "}", &batch);
  AddLine(9, R"({"custom_id":"two","method":"POST","url":"/v1/completions","body":{"prompt":"a",
                "max_tokens":2,"model":"other"}})",
          &batch);
  AddLine(0, "", &batch);
  Results results;
  ASSERT_TRUE(Ask(server.inference(), batch, &results).ok());
  ASSERT_EQ(results.size(), 4u);
  EXPECT_FALSE(results[0].has_status());
  EXPECT_FALSE(results[0].has_result());
  EXPECT_THAT(results[0].line(), HasSubstr(R"({"custom_id":"one","line":3,"result":{)"));
  EXPECT_EQ(results[1].status().field(), "line");
  EXPECT_THAT(results[1].line(), HasSubstr(R"({"custom_id":"","line":4,"status":{"code":3,)"));
  EXPECT_EQ(results[2].status().reason(), "MODEL_NOT_FOUND");
  EXPECT_THAT(results[2].line(), HasSubstr(R"({"id":"batch_req_9","custom_id":"two",)"));
  EXPECT_EQ(results[3].status().field(), "line");
  server.ExpectNothingLeft();
}

TEST(GenerateBatchTest, TheBatchsModelIsThatOfLinesWithoutOne) {
  TestServer server;
  v1::GenerateBatchRequest batch;
  batch.set_model("other");
  AddLine(1, R"({"custom_id":"one","request":{"text":"a"}})", &batch);
  Results results;
  ASSERT_TRUE(Ask(server.inference(), batch, &results).ok());
  EXPECT_EQ(results[0].status().reason(), "MODEL_NOT_FOUND");
}

TEST(GenerateBatchTest, TheBatchsModelIsThatOfRequestsWithoutOne) {
  TestServer server;
  v1::GenerateBatchRequest batch;
  batch.set_model("other");
  *batch.add_requests() = AskFor(2);
  *batch.add_requests() = AskFor(2);
  batch.mutable_requests(1)->set_model("test-model");
  Results results;
  ASSERT_TRUE(Ask(server.inference(), batch, &results).ok());
  EXPECT_EQ(results[0].status().reason(), "MODEL_NOT_FOUND");
  EXPECT_EQ(results[1].result().text(), "ab");
}

// Or a small call would become a copy of a long name for each of its items.
TEST(GenerateBatchTest, TheBatchsModelIsShort) {
  TestServer server;
  for (const bool lines : {false, true}) {
    v1::GenerateBatchRequest batch;
    if (lines) {
      AddLine(1, R"({"custom_id":"one","request":{"text":"a"}})", &batch);
    } else {
      *batch.add_requests() = AskFor(1);
    }
    Results results;
    batch.set_model(std::string(512, 'm'));
    EXPECT_TRUE(Ask(server.inference(), batch, &results).ok());
    EXPECT_EQ(results[0].status().reason(), "MODEL_NOT_FOUND");
    batch.set_model(std::string(513, 'm'));
    EXPECT_EQ(ViolatedField(Ask(server.inference(), batch, &results)), "model");
  }
}

TEST(GenerateBatchTest, LinesAreInsteadOfRequests) {
  TestServer server;
  v1::GenerateBatchRequest batch;
  *batch.add_requests() = AskFor(1);
  AddLine(1, "{}", &batch);
  Results results;
  EXPECT_EQ(ViolatedField(Ask(server.inference(), batch, &results)), "lines");
  batch.clear_requests();
  for (int i = 0; i < 1024; ++i) AddLine(1, "{}", &batch);
  EXPECT_EQ(ViolatedField(Ask(server.inference(), batch, &results)), "lines");
  EXPECT_TRUE(results.empty());
}

TEST(GenerateBatchTest, TheEndOfTheCallEndsItsLines) {
  TestServer server;
  server.gate().Allow(20);
  v1::GenerateBatchRequest batch;
  for (uint32_t i = 0; i < 200; ++i) {
    const std::string text = i % 3 == 0 ? "bad" : R"({"custom_id":"x","request":{"text":"a"}})";
    AddLine(i, text, &batch);
  }
  grpc::ClientContext context;
  const auto reader = server.inference().GenerateBatch(&context, batch);
  v1::GenerateBatchResult result;
  EXPECT_TRUE(reader->Read(&result));
  context.TryCancel();
  while (reader->Read(&result)) continue;
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
}

TEST(GenerateBatchTest, TheEndOfTheCallEndsItsItems) {
  for (const bool deadline : {false, true}) {
    TestServer server;
    server.gate().Allow(20);
    v1::GenerateBatchRequest batch;
    for (int i = 0; i < 200; ++i) {
      *batch.add_requests() = AskFor(i % 2 == 0 ? 2 : 1000);
      if (i % 5 != 0) continue;
      batch.mutable_requests(i)->mutable_sampling()->set_temperature(1);
      batch.mutable_requests(i)->set_n(2);
    }
    grpc::ClientContext context;
    if (deadline) {
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
    }
    const auto reader = server.inference().GenerateBatch(&context, batch);
    v1::GenerateBatchResult result;
    EXPECT_TRUE(reader->Read(&result) || deadline);
    if (!deadline) context.TryCancel();
    while (reader->Read(&result)) continue;
    EXPECT_EQ(reader->Finish().error_code(),
              deadline ? grpc::StatusCode::DEADLINE_EXCEEDED : grpc::StatusCode::CANCELLED);
    server.gate().Allow(-1);
    server.ExpectNothingLeft();
  }
}

TEST(GenerateBatchTest, ADrainingServerTakesNoBatch) {
  TestServer server;
  server.front().StartDrain();
  v1::GenerateBatchRequest batch;
  *batch.add_requests() = AskFor(1);
  Results results;
  EXPECT_EQ(Reason(Ask(server.inference(), batch, &results)), "DRAINING");
}

}  // namespace
}  // namespace quire

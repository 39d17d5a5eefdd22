// Replies larger than one message: every call whose reply grows with its request returns a status
// that names a smaller request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

void ExpectTooLarge(const grpc::Status& status, const std::string& instead) {
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(status), "REPLY_TOO_LARGE");
  EXPECT_THAT(status.error_message(), HasSubstr(instead));
}

// The limit is the default limit of clients: 4 MiB.
TEST(ReplySizeTest, TokenizeIsRefusedOnlyBeyondTheClientsLimit) {
  TestServer server;
  v1::TokenizeRequest request;
  request.set_offsets(true);
  const auto tokenize = [&](size_t bytes) {
    request.set_text(std::string(bytes, 'a'));
    v1::TokenizeResponse response;
    grpc::ClientContext context;
    const grpc::Status status = server.inference().Tokenize(&context, request, &response);
    EXPECT_EQ(response.token_ids_size(), status.ok() ? static_cast<int>(bytes) + 1 : 0);
    return status;
  };
  // A byte is one id of 1 byte and two offsets of 3 bytes.
  EXPECT_TRUE(tokenize(580'000).ok());
  ExpectTooLarge(tokenize(640'000), "no offsets");
  request.set_offsets(false);
  EXPECT_TRUE(tokenize(640'000).ok());
}

TEST(ReplySizeTest, DetokenizeOfShortIdsWithLongTexts) {
  TestServerOptions options;
  options.front.max_reply_bytes = 100'000;
  TestServer server(options);
  v1::DetokenizeRequest request;
  request.set_skip_special_tokens(false);
  for (int i = 0; i < 25'000; ++i) request.add_token_ids(kTestEos);  // "</s>"
  v1::DetokenizeResponse response;
  grpc::ClientContext contexts[2];
  ExpectTooLarge(server.inference().Detokenize(&contexts[0], request, &response), "fewer ids");
  request.mutable_token_ids()->RemoveLast();
  EXPECT_TRUE(server.inference().Detokenize(&contexts[1], request, &response).ok());
  EXPECT_EQ(response.text().size(), 4 * 24'999u);
}

// The request ends when its output exceeds one reply, not after all of it is computed.
TEST(ReplySizeTest, GenerateUnaryStopsAndNamesTheStream) {
  TestServerOptions options;
  options.front.max_reply_bytes = 100'000;
  options.max_model_len = 60'000;
  options.num_blocks = 4001;
  TestServer server(options);
  v1::GenerateRequest request = AskFor(50'000);
  request.mutable_output()->set_logprobs(true);
  v1::GenerateResult result;
  grpc::ClientContext contexts[2];
  ExpectTooLarge(server.inference().GenerateUnary(&contexts[0], request, &result), "Generate");
  server.ExpectNothingLeft();
  EXPECT_LT(server.engine().Stats().generated_tokens, 25'000);
  // A smaller output is returned: 9 bytes per token, plus the facts about the request.
  request.mutable_stop()->set_max_tokens(3'500);
  ASSERT_TRUE(server.inference().GenerateUnary(&contexts[1], request, &result).ok());
  EXPECT_EQ(result.token_ids_size(), 3'500);
  server.ExpectNothingLeft();
  // A stream has no such limit.
  request.mutable_stop()->set_max_tokens(20'000);
  EXPECT_EQ(Stream(server.inference(), request).ids.size(), 20'000u);
}

// The answer contains the request, and the request's host twice.
TEST(ReplySizeTest, ReflectionOfAHugeHost) {
  TestServer server;
  const auto stub = grpc::reflection::v1::ServerReflection::NewStub(server.channel());
  grpc::ClientContext context;
  const auto stream = stub->ServerReflectionInfo(&context);
  grpc::reflection::v1::ServerReflectionRequest request;
  request.set_host(std::string(3 << 20, 'h'));
  request.set_list_services("");
  ASSERT_TRUE(stream->Write(request));
  grpc::reflection::v1::ServerReflectionResponse response;
  EXPECT_FALSE(stream->Read(&response));
  ExpectTooLarge(stream->Finish(), "ask for less");
}

}  // namespace
}  // namespace quire

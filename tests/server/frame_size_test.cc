// Bytes on the wire for a streamed token: counted by protobuf's rules, the same on every machine.
// Covers server/generate/generation_stream.cc
#include <gtest/gtest.h>

#include "tests/server/test_server.h"

namespace quire {
namespace {

// The bytes of each frame with tokens, when the engine makes a step only after the frame of the
// step before was read: then a frame holds one token.
std::vector<size_t> BytesOfFrames(const v1::GenerateRequest& request, int32_t count) {
  TestServer server;
  server.gate().Allow(0);
  grpc::ClientContext context;
  const auto reader = server.inference().Generate(&context, request);
  std::vector<size_t> bytes;
  v1::GenerateResponse frame;
  while (static_cast<int32_t>(bytes.size()) < count) {
    server.gate().Allow(1);
    do {
      if (!reader->Read(&frame)) return bytes;
    } while (!frame.has_tokens());
    EXPECT_EQ(frame.tokens().token_ids_size(), 1);
    bytes.push_back(frame.ByteSizeLong());
  }
  server.gate().Allow(-1);
  while (reader->Read(&frame)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  return bytes;
}

// Tag and length of the delta: 2. Its ids: tag, length, an id below 128: 3. Its text: tag, length,
// a letter: 3. Its cumulative_tokens: tag and a number below 128: 2.
TEST(FrameSizeTest, ATokenWithItsTextIsTenBytes) {
  EXPECT_EQ(BytesOfFrames(AskFor(100), 100), std::vector<size_t>(100, 10));
}

// From 128 on cumulative_tokens has a second byte.
TEST(FrameSizeTest, TheCountOfTokensGrowsByAByteAt128) {
  std::vector<size_t> expected(127, 10);
  expected.resize(140, 11);
  EXPECT_EQ(BytesOfFrames(AskFor(140), 140), expected);
}

TEST(FrameSizeTest, FieldsThatWereNotAskedForCostNothing) {
  v1::GenerateRequest request = AskFor(10);
  request.mutable_output()->set_text(false);
  EXPECT_EQ(BytesOfFrames(request, 10), std::vector<size_t>(10, 7));
  request.mutable_output()->set_logprobs(true);  // tag, length and a float of 4 bytes
  EXPECT_EQ(BytesOfFrames(request, 10), std::vector<size_t>(10, 13));
}

}  // namespace
}  // namespace quire

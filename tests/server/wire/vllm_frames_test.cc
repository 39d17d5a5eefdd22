// The memory that an output of vllm.grpc.engine keeps while it is streamed.
#include "server/wire/vllm_engine/vllm_frames.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "server/call/status_codec.h"
#include "server/generate/stream_outlet.h"
#include "tests/allocations.h"

namespace quire {
namespace {

namespace wire = ::vllm::grpc::engine;

constexpr int64_t kMaxReplyBytes = 100'000;

const absl::Status kAborted = Refusal(absl::StatusCode::kCancelled, "ABORTED", "by a test");

OutputDelta Delta(uint32_t first, uint32_t count) {
  OutputDelta delta;
  for (uint32_t id = first; id < first + count; ++id) {
    delta.token_ids.push_back(id);
    delta.logprobs.push_back(-1);
  }
  delta.tokens = count;
  delta.cumulative = first + count;
  return delta;
}

wire::GenerateComplete EndOf(VllmFrames& frames) {
  wire::GenerateResponse response;
  EXPECT_TRUE(response.ParseFromString(frames.Failure(kAborted, true).value_or("")));
  return response.complete();
}

// An output that its last message cannot have again is not kept for it.
TEST(VllmFramesTest, AnOutputBeyondOneMessageIsNotKept) {
  wire::GenerateRequest request;
  request.set_stream(true);
  request.mutable_sampling_params()->set_logprobs(0);
  VllmFrames frames(0, kMaxReplyBytes);
  frames.Take(request);
  const int64_t before = allocation_counters.live_bytes;
  for (uint32_t i = 0; i < 1000; ++i) {
    EXPECT_TRUE(frames.Tokens(Delta(1000 * i, 1000), {}).has_value());
  }
  EXPECT_LT(allocation_counters.live_bytes - before, 2 * kMaxReplyBytes) << "of an output of 8 MB";
  const wire::GenerateComplete complete = EndOf(frames);
  EXPECT_EQ(complete.completion_tokens(), 1'000'000u);
  EXPECT_EQ(complete.output_ids_size(), 0);
  EXPECT_FALSE(complete.has_output_logprobs());
}

TEST(VllmFramesTest, AnOutputOfOneMessageComesWholeAtTheEnd) {
  wire::GenerateRequest request;
  request.set_stream(true);
  VllmFrames frames(0, kMaxReplyBytes);
  frames.Take(request);
  for (uint32_t i = 0; i < 10; ++i) EXPECT_TRUE(frames.Tokens(Delta(100 * i, 100), {}));
  const wire::GenerateComplete complete = EndOf(frames);
  EXPECT_EQ(complete.completion_tokens(), 1000u);
  ASSERT_EQ(complete.output_ids_size(), 1000);
  EXPECT_EQ(complete.output_ids(999), 999u);
}

}  // namespace
}  // namespace quire

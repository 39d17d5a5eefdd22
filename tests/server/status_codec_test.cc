// The gRPC status of every end of a request, as in docs/errors.md.
#include "server/call/status_codec.h"

#include <gmock/gmock.h>
#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include "tests/server/test_server.h"

namespace quire {
namespace {

using Code = grpc::StatusCode;

TEST(StatusCodecTest, RegularEndsAreOk) {
  for (const FinishReason reason :
       {FinishReason::kEos, FinishReason::kStopToken, FinishReason::kStopText,
        FinishReason::kMaxTokens, FinishReason::kContextLimit, FinishReason::kLoop,
        FinishReason::kNoToken, FinishReason::kTruncated}) {
    EXPECT_TRUE(ToGrpcStatus(StatusOf(reason)).ok()) << Name(reason);
  }
}

TEST(StatusCodecTest, OtherEndsHaveACodeAndAReason) {
  struct Expected {
    FinishReason reason;
    Code code;
    const char* name;
    bool retry;
  };
  constexpr Expected kTable[] = {
      {FinishReason::kDeadline, Code::DEADLINE_EXCEEDED, "DEADLINE", false},
      {FinishReason::kCancelled, Code::CANCELLED, "CANCELLED", false},
      {FinishReason::kSlowReader, Code::RESOURCE_EXHAUSTED, "SLOW_READER", false},
      {FinishReason::kDraining, Code::UNAVAILABLE, "DRAINING", true},
      {FinishReason::kNumeric, Code::INTERNAL, "NUMERIC", false},
      {FinishReason::kEngineFault, Code::INTERNAL, "ENGINE_FAULT", false},
      {FinishReason::kNone, Code::INTERNAL, "ENGINE_FAULT", false},
  };
  for (const Expected& expected : kTable) {
    const grpc::Status status = ToGrpcStatus(StatusOf(expected.reason));
    EXPECT_EQ(status.error_code(), expected.code) << expected.name;
    EXPECT_EQ(Reason(status), expected.name);
    EXPECT_EQ(RetrySeconds(status) > 0, expected.retry) << expected.name;
    EXPECT_NE(status.error_message(), "");
  }
}

TEST(StatusCodecTest, DetailsReachTheGrpcStatus) {
  const grpc::Status bad = ToGrpcStatus(InvalidField("sampling.top_p", "must be above 0"));
  EXPECT_EQ(bad.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(bad.error_message(), "sampling.top_p: must be above 0");
  EXPECT_EQ(ViolatedField(bad), "sampling.top_p");
  const grpc::Status refused =
      ToGrpcStatus(Refusal(absl::StatusCode::kUnavailable, "QUEUE_FULL", "full", 1.25));
  EXPECT_EQ(Reason(refused), "QUEUE_FULL");
  EXPECT_DOUBLE_EQ(RetrySeconds(refused), 1.25);
  EXPECT_EQ(ToGrpcStatus(absl::InternalError("plain")).error_details(), "");
}

}  // namespace
}  // namespace quire

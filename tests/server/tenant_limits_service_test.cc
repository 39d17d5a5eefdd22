// Limits of tenants and predictions, as a client sees them.
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

TestServerOptions WithTenants() {
  TestServerOptions options;
  options.front.door = TenantInMetadata();
  options.timed_steps = true;
  return options;
}

// The first description of a QuotaFailure; empty if there is none.
std::string Quota(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::QuotaFailure failure;
  if (!details.ParseFromString(status.error_details())) return "";
  for (const auto& detail : details.details()) {
    if (detail.UnpackTo(&failure)) return failure.violations(0).description();
  }
  return "";
}

StreamedOutput As(TestServer& server, TenantId tenant, const v1::GenerateRequest& request,
                  int deadline_seconds = 60) {
  grpc::ClientContext context;
  context.AddMetadata(kTestTenant, std::to_string(tenant));
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(deadline_seconds));
  return Stream(server.inference(), request, &context);
}

TEST(TenantLimitsServiceTest, TokensAMinuteAreRefusedWithAnExactRetry) {
  TestServer server(WithTenants());
  ASSERT_TRUE(server.engine().SetTenants({.tenants = {{5, {.tokens_per_minute = 10}}}}).ok());
  // Three prompt tokens, and seven generated ones.
  EXPECT_TRUE(As(server, 5, AskFor(7)).status.ok());
  ASSERT_TRUE(
      TestServer::Eventually([&] { return server.engine().Stats().generated_tokens == 7; }));
  const StreamedOutput refused = As(server, 5, AskFor(7));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(refused.status), "TENANT_LIMIT");
  EXPECT_EQ(Fact(refused.status, "limit"), "tokens_per_minute");
  EXPECT_EQ(Fact(refused.status, "value"), "10");
  EXPECT_EQ(Quota(refused.status), "tokens_per_minute of 10");
  // Three tokens come in 18 seconds, and some time has passed.
  EXPECT_GT(RetrySeconds(refused.status), 0);
  EXPECT_LE(RetrySeconds(refused.status), 18.1);
  EXPECT_TRUE(As(server, 6, AskFor(7)).status.ok());
  server.ExpectNothingLeft();
}

TEST(TenantLimitsServiceTest, AcceptedAndLoadCarryThePrediction) {
  TestServer server(WithTenants());
  const v1::Load before = server.Load();
  EXPECT_FALSE(before.has_predicted_first_token_seconds());
  EXPECT_FALSE(As(server, 1, AskFor(2)).accepted.has_predicted_first_token_seconds());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(As(server, 1, AskFor(2)).status.ok());
  const StreamedOutput output = As(server, 1, AskFor(2));
  EXPECT_GT(output.accepted.predicted_first_token_seconds(), 0);
  EXPECT_GT(server.Load().predicted_first_token_seconds(), 0);
  EXPECT_NE(server.Metrics().find("quire_first_token_prediction_error_seconds_count"),
            std::string::npos);
}

// Slow steps are measured; then a long prompt cannot be computed before its deadline.
TEST(TenantLimitsServiceTest, DeadlineThatCannotBeMetIsRefusedAtOnce) {
  TestServer server(WithTenants());
  server.gate().Slow(std::chrono::milliseconds(30));
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(As(server, 1, AskFor(1)).status.ok());
  server.gate().Slow(std::chrono::milliseconds(0));
  v1::GenerateRequest request = AskFor(1);
  request.set_text(std::string(1500, 'x'));
  // At 10 ms a token these are 15 seconds.
  const StreamedOutput refused = As(server, 1, request, 4);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Reason(refused.status), "DEADLINE_UNREACHABLE");
  EXPECT_GT(std::stod("0" + Fact(refused.status, "predicted_ttft_ms")), 8000);
  EXPECT_TRUE(refused.frames.empty());
  EXPECT_NE(server.Metrics().find("quire_deadline_refusals_total{model_name"), std::string::npos);
  EXPECT_TRUE(As(server, 1, request).status.ok());
  server.ExpectNothingLeft();
}

}  // namespace
}  // namespace quire

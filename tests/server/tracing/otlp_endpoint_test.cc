// Addresses of collectors, good ones and those that a user is likely to try.
#include "server/tracing/otlp_endpoint.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(OtlpEndpointTest, TakesAnAddressWithOrWithoutScheme) {
  const struct {
    const char* text;
    const char* target;
    bool tls, has_scheme;
  } kCases[] = {
      {"127.0.0.1:4317", "dns:///127.0.0.1:4317", false, false},
      {"http://collector:4317", "dns:///collector:4317", false, true},
      {"http://collector:4317/", "dns:///collector:4317", false, true},
      {"https://otel.example.com:443", "dns:///otel.example.com:443", true, true},
      {"[::1]:4317", "dns:///[::1]:4317", false, false},
      {"unix:1", "dns:///unix:1", false, false},
  };
  for (const auto& c : kCases) {
    const auto endpoint = ParseOtlpEndpoint(c.text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(endpoint->target(), c.target);
    EXPECT_EQ(endpoint->tls, c.tls) << c.text;
    EXPECT_EQ(endpoint->has_scheme, c.has_scheme) << c.text;
  }
}

TEST(OtlpEndpointTest, RefusalsNameTheFlagAndSayWhatToChange) {
  const struct {
    const char* text;
    const char* words;
  } kCases[] = {
      {"collector", "not HOST:PORT"},
      {":4317", "not HOST:PORT"},
      {"collector:0", "not HOST:PORT"},
      {"collector:65536", "not HOST:PORT"},
      {"collector:otlp", "not HOST:PORT"},
      {"http://", "not HOST:PORT"},
      {"::1:4317", "brackets"},
      {"grpc://collector:4317", "scheme"},
      {"http://user:secret@collector:1", "user"},
      {"http://collector:4318/v1/traces", "gRPC port"},
  };
  for (const auto& c : kCases) {
    const auto endpoint = ParseOtlpEndpoint(c.text);
    ASSERT_FALSE(endpoint.ok()) << c.text;
    const std::string message(endpoint.status().message());
    EXPECT_NE(message.find("--otlp-endpoint"), std::string::npos) << message;
    EXPECT_NE(message.find(c.words), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace quire

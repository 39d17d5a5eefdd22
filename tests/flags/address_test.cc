// DialAddress: each form that people write, and the form that gRPC dials.
#include "flags/address.h"

#include <gtest/gtest.h>

namespace quire::flags {
namespace {

TEST(AddressTest, AnAddressWithoutAPortGetsTheServersOwn) {
  EXPECT_EQ(DialAddress("localhost"), "localhost:50051");
  EXPECT_EQ(DialAddress("10.0.0.7"), "10.0.0.7:50051");
  EXPECT_EQ(DialAddress("::1"), "[::1]:50051");
  EXPECT_EQ(DialAddress("[::1]"), "[::1]:50051");
}

TEST(AddressTest, APortOrASchemeStays) {
  for (const char* text : {"localhost:1", "[::1]:1", "unix:/run/q", "unix:///run/q", "dns:///host",
                           "ipv6:[::1]:1", ""}) {
    EXPECT_EQ(DialAddress(text), text);
  }
}

TEST(AddressTest, APathIsAUnixSocket) { EXPECT_EQ(DialAddress("/run/q"), "unix:/run/q"); }

}  // namespace
}  // namespace quire::flags

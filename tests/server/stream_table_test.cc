// StreamTable: who is counted in when the server's open calls run short.
#include "server/generate/stream_table.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

constexpr TenantId kFlood = 1, kLight = 2;

TEST(StreamTableTest, RefusesBeyondItsLimitUntilCallsHaveLeft) {
  StreamTable table(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(table.Enter(kFlood).ok());
  EXPECT_EQ(table.Enter(kFlood).code(), absl::StatusCode::kUnavailable);
  table.Leave(kFlood);  // the refused one
  table.Leave(kFlood);
  EXPECT_TRUE(table.Enter(kFlood).ok());
  EXPECT_EQ(table.open(), 3);
  for (int i = 0; i < 3; ++i) table.Leave(kFlood);
  EXPECT_TRUE(table.WaitEmpty(0));
}

TEST(StreamTableTest, ATenantBelowItsPartUsesTheReservedCalls) {
  StreamTable table(10);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(table.Enter(kFlood).ok());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(table.Enter(kLight).ok()) << i;
  EXPECT_FALSE(table.Enter(kLight).ok()) << "half of the calls are its part";
  EXPECT_FALSE(table.Enter(kFlood).ok());
}

TEST(StreamTableTest, TheReserveEndsToo) {
  StreamTable table(10 * StreamTable::kReserved);
  for (int i = 0; i < 10 * StreamTable::kReserved; ++i) ASSERT_TRUE(table.Enter(kFlood).ok());
  for (int i = 0; i < StreamTable::kReserved; ++i) ASSERT_TRUE(table.Enter(kLight).ok());
  EXPECT_FALSE(table.Enter(kLight).ok());
}

}  // namespace
}  // namespace quire

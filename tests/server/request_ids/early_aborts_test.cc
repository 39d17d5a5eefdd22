// Aborts that come before, beside and after their requests, in time that the test makes.
#include "server/request_ids/early_aborts.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

constexpr int64_t kLater = EarlyAborts::kKeptNs;

TEST(EarlyAbortsTest, AnAbortWaitsForItsRequestOnce) {
  EarlyAborts aborts;
  EXPECT_TRUE(aborts.Remember(1, "a", 0));
  EXPECT_FALSE(aborts.Take(1, "b", 1));
  EXPECT_FALSE(aborts.Take(2, "a", 1)) << "another tenant's";
  EXPECT_TRUE(aborts.Take(1, "a", 1));
  EXPECT_FALSE(aborts.Take(1, "a", 1));
  EXPECT_TRUE(aborts.Remember(1, "a", 2));
  EXPECT_FALSE(aborts.Take(1, "a", 2 + kLater)) << "too late";
}

TEST(EarlyAbortsTest, AnAbortThatComesLateDoesNotHitTheNextRequest) {
  EarlyAborts aborts;
  aborts.Ended(1, "a", 5);
  EXPECT_FALSE(aborts.Remember(1, "a", 5 + kLater - 1));
  EXPECT_FALSE(aborts.Take(1, "a", 5 + kLater - 1));
  EXPECT_TRUE(aborts.Remember(2, "a", 6)) << "another tenant's request ended";
  EXPECT_TRUE(aborts.Remember(1, "a", 5 + kLater));
}

TEST(EarlyAbortsTest, AFloodIsBoundedAndHitsItsTenantAlone) {
  EarlyAborts aborts;
  EXPECT_TRUE(aborts.Remember(2, "mine", 0));
  for (int i = 0; i < 100'000; ++i) EXPECT_TRUE(aborts.Remember(1, std::to_string(i), 1));
  EXPECT_EQ(aborts.size(), EarlyAborts::kMaxOfTenant + 1);
  EXPECT_FALSE(aborts.Take(1, "0", 2));
  EXPECT_TRUE(aborts.Take(1, "99999", 2));
  EXPECT_TRUE(aborts.Take(2, "mine", 2));
  for (TenantId tenant = 10; tenant < 50; ++tenant) {
    for (size_t i = 0; i < EarlyAborts::kMaxOfTenant; ++i) {
      aborts.Remember(tenant, std::to_string(i), 3);
    }
  }
  EXPECT_EQ(aborts.size(), EarlyAborts::kMaxIds);
  EXPECT_FALSE(aborts.Remember(99, "a", 4)) << "there is no room";
  EXPECT_TRUE(aborts.Remember(99, "a", 3 + kLater)) << "old ones have gone";
  EXPECT_FALSE(aborts.Remember(99, std::string(129, 'a'), 4)) << "no id is so long";
}

}  // namespace
}  // namespace quire

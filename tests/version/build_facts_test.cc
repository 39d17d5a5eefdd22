// The facts of a build as a line and as JSON.
#include "version/build_facts.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(BuildFactsTest, DescribeNamesCudaOrItsAbsence) {
  EXPECT_EQ(Describe({"1.2.3", "0123456789ab", "GNU 12.2.0", "none", "Release"}),
            "commit 0123456789ab, GNU 12.2.0, no CUDA, Release");
  EXPECT_EQ(Describe({"1.2.3", "unknown", "Clang 19.1", "13.0.88", "Debug"}),
            "commit unknown, Clang 19.1, CUDA 13.0.88, Debug");
}

TEST(BuildFactsTest, JsonHasEachMember) {
  EXPECT_EQ(ToJson({"1.2.3", "0123456789ab", "GNU 12.2.0", "none", "Release"}),
            R"({"version":"1.2.3","commit":"0123456789ab","compiler":"GNU 12.2.0",)"
            R"("cuda":"none","build_type":"Release"})");
}

}  // namespace
}  // namespace quire

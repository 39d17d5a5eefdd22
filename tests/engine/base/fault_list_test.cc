// Lists of faults: order, repeats, codes, and the bound of their text.
#include "engine/base/fault_list.h"

#include <gtest/gtest.h>

namespace quire::testing {
namespace {

TEST(FaultListTest, WithoutFaultsItIsOk) {
  FaultList list;
  list.Add(absl::OkStatus());
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(list.status().ok());
  EXPECT_TRUE(FaultList::Join({&list, &list}).ok());
}

TEST(FaultListTest, HasEachFaultOnceInOrder) {
  FaultList list;
  list.Add("b");
  list.Add("a");
  list.Add(absl::NotFoundError("a\nc"));
  EXPECT_EQ(list.size(), 3u);
  EXPECT_EQ(list.status(), absl::InvalidArgumentError("b\na\nc"));
}

TEST(FaultListTest, TheFirstFaultHasTheCode) {
  FaultList list;
  list.Add(absl::NotFoundError("there is no file"));
  list.Add("and a fault");
  EXPECT_EQ(list.status(), absl::NotFoundError("there is no file\nand a fault"));
}

TEST(FaultListTest, CountsThoseBeyondTheMostThatAreShown) {
  FaultList list, other;
  for (size_t i = 0; i < FaultList::kMostShown + 7; ++i) list.Add(std::to_string(i));
  const std::string text(list.status().message());
  EXPECT_TRUE(text.starts_with("0\n1\n2\n")) << text;
  EXPECT_TRUE(text.ends_with("\n19\nand 7 more such faults")) << text;
  other.Add("another");
  EXPECT_EQ(FaultList::Join({&list, &other}), absl::InvalidArgumentError(text + "\nanother"));
}

}  // namespace
}  // namespace quire::testing

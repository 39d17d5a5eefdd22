// AlgorithmTable: loads saved choices, and refuses a file that is foreign, damaged or truncated.
#include "kernels/cuda/matmul/algorithm_table.h"

#include <cstdio>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire::cuda {
namespace {

using ::testing::HasSubstr;

constexpr ProductShape kShape = {.tokens = 64,
                                 .n = 151936,
                                 .k = 896,
                                 .in = DType::kF16,
                                 .out = DType::kF32,
                                 .bias = true,
                                 .x_alignment = 16,
                                 .w_alignment = 8,
                                 .out_alignment = 2};
constexpr Choice kChoice = {.algorithm = {1, 2, 3, 0xfedcba9876543210u, 0, 0, ~uint64_t{0}, 8},
                            .microseconds = 12.5f};
constexpr Choice kOwn = {.cut = {112, 64, 3}, .microseconds = 3};

class AlgorithmTableTest : public ::testing::Test {
 protected:
  AlgorithmTableTest() { std::remove(path_.c_str()); }
  ~AlgorithmTableTest() override { std::remove(path_.c_str()); }

  void SaveOne() {
    AlgorithmTable table("machine 1");
    table.Put(kShape, kChoice);
    ProductShape other = kShape;
    other.bias = false;
    table.Put(other, kOwn);
    other.block_scales = true;
    table.Put(other, {.algorithm = {9}, .microseconds = 3});
    ASSERT_TRUE(table.Save(path_, &why_)) << why_;
  }
  std::string Contents() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }

  const std::string path_ = ::testing::TempDir() + "/algorithm_table_test";
  std::string why_;
};

TEST_F(AlgorithmTableTest, LoadsSavedChoices) {
  SaveOne();
  AlgorithmTable table("machine 1");
  ASSERT_TRUE(table.Load(path_, &why_)) << why_;
  EXPECT_FALSE(table.changed());
  const Choice* const found = table.Find(kShape);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->algorithm, kChoice.algorithm);
  EXPECT_EQ(found->microseconds, kChoice.microseconds);
  ProductShape other = kShape;
  other.bias = false;
  ASSERT_NE(table.Find(other), nullptr);
  EXPECT_EQ(table.Find(other)->cut, kOwn.cut);
  other.block_scales = true;
  ASSERT_NE(table.Find(other), nullptr);
  EXPECT_TRUE(table.Find(other)->cut.empty());
  EXPECT_EQ(table.Find(other)->algorithm, (AlgorithmWords{9}));
  other.out_alignment = 4;
  EXPECT_EQ(table.Find(other), nullptr);
}

TEST_F(AlgorithmTableTest, SavesTheSameTextAgain) {
  SaveOne();
  const std::string text = Contents();
  AlgorithmTable table("machine 1");
  ASSERT_TRUE(table.Load(path_, &why_));
  ASSERT_TRUE(table.Save(path_, &why_));
  EXPECT_EQ(Contents(), text);
}

TEST_F(AlgorithmTableTest, OmitsUntimedChoicesFromTheFile) {
  AlgorithmTable table("machine 1");
  table.Put(kShape, {.algorithm = {5}});
  EXPECT_NE(table.Find(kShape), nullptr);
  EXPECT_FALSE(table.changed());
  ASSERT_TRUE(table.Save(path_, &why_));
  AlgorithmTable later("machine 1");
  ASSERT_TRUE(later.Load(path_, &why_)) << why_;
  EXPECT_EQ(later.Find(kShape), nullptr);
}

TEST_F(AlgorithmTableTest, MissingFileIsNoError) {
  AlgorithmTable table("machine 1");
  EXPECT_FALSE(table.Load(path_, &why_));
  EXPECT_EQ(why_, "");
}

TEST_F(AlgorithmTableTest, RefusesAFileOfAnotherMachine) {
  SaveOne();
  AlgorithmTable table("machine 2");
  EXPECT_FALSE(table.Load(path_, &why_));
  EXPECT_THAT(why_, HasSubstr("machine 1"));
  EXPECT_EQ(table.Find(kShape), nullptr);
}

TEST_F(AlgorithmTableTest, RefusesADamagedFile) {
  SaveOne();
  const std::string text = Contents();
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] ^= 1;
    Write(damaged);
    AlgorithmTable table("machine 1");
    ASSERT_FALSE(table.Load(path_, &why_)) << i;
    EXPECT_NE(why_, "");
    EXPECT_EQ(table.Find(kShape), nullptr);
  }
}

TEST_F(AlgorithmTableTest, RefusesATruncatedFile) {
  SaveOne();
  const std::string text = Contents();
  for (size_t length = 0; length < text.size(); ++length) {
    Write(text.substr(0, length));
    AlgorithmTable table("machine 1");
    ASSERT_FALSE(table.Load(path_, &why_)) << length;
  }
  Write(text + text);
  AlgorithmTable table("machine 1");
  EXPECT_FALSE(table.Load(path_, &why_));
}

TEST_F(AlgorithmTableTest, ReportsASaveError) {
  AlgorithmTable table("machine 1");
  table.Put(kShape, kChoice);
  EXPECT_FALSE(table.Save("/no such folder/choices", &why_));
  EXPECT_THAT(why_, HasSubstr("No such file"));
  EXPECT_TRUE(table.changed());
}

}  // namespace
}  // namespace quire::cuda

// SumChoice: sizes, its text and its file. Needs no device.
#include "kernels/cuda/group/sum_choice.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace quire::cuda {
namespace {

TEST(SumChoiceTest, ASizeTakesTheMethodOfTheNextSizeThatWasTimed) {
  SumChoice choice(SumMethod::kOneShot);
  choice.Set(3, SumMethod::kTwoShot);  // up to 4 MiB
  choice.Set(5, SumMethod::kNccl);     // 64 MiB and more
  EXPECT_EQ(choice.For(1), SumMethod::kOneShot);
  EXPECT_EQ(choice.For(1 << 20), SumMethod::kOneShot);
  EXPECT_EQ(choice.For((1 << 20) + 1), SumMethod::kTwoShot);
  EXPECT_EQ(choice.For(4 << 20), SumMethod::kTwoShot);
  EXPECT_EQ(choice.For((4 << 20) + 1), SumMethod::kOneShot);
  EXPECT_EQ(choice.For(int64_t{1} << 40), SumMethod::kNccl);
  EXPECT_TRUE(choice.Has(SumMethod::kNccl));
  EXPECT_FALSE(SumChoice(SumMethod::kOneShot).Has(SumMethod::kNccl));
}

TEST(SumChoiceTest, TheTextIsReadBackAndAnyOtherIsRefused) {
  SumChoice choice(SumMethod::kTwoShot), read(SumMethod::kNccl);
  choice.Set(0, SumMethod::kOneShot);
  choice.Set(5, SumMethod::kNccl);
  EXPECT_EQ(choice.Text(), "12222N");
  ASSERT_TRUE(SumChoice::Parse(choice.Text(), &read));
  EXPECT_EQ(read.Text(), choice.Text());
  for (const char* bad : {"", "12222", "12222NN", "12222?", "12222x"}) {
    EXPECT_FALSE(SumChoice::Parse(bad, &read)) << bad;
  }
}

TEST(SumChoiceTest, AFileKeepsALineForEachMachine) {
  const auto folder = std::filesystem::temp_directory_path() / "sum_choice_test";
  std::filesystem::create_directories(folder);
  const std::string file = folder / "sums";
  std::filesystem::remove(file);
  EXPECT_EQ(SumChoice::Load(file, "H200, 2 ranks"), "");
  EXPECT_TRUE(SumChoice::Save(file, "H200, 2 ranks", "111111"));
  EXPECT_TRUE(SumChoice::Save(file, "H200, 4 ranks", "1222NN"));
  EXPECT_TRUE(SumChoice::Save(file, "H200, 2 ranks", "11111N"));
  EXPECT_EQ(SumChoice::Load(file, "H200, 2 ranks"), "11111N");
  EXPECT_EQ(SumChoice::Load(file, "H200, 4 ranks"), "1222NN");
  EXPECT_EQ(SumChoice::Load(file, "H200"), "");
  EXPECT_FALSE(SumChoice::Save(folder / "missing" / "sums", "x", "111111"));
}

}  // namespace
}  // namespace quire::cuda

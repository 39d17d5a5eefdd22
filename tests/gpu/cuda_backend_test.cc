// CudaBackend::Create refuses options that no device supports. Needs no device.
#include "kernels/cuda/cuda_backend.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(CudaBackendTest, RefusesAGroupOfMoreThanOneRank) {
  std::string why;
  EXPECT_EQ(CudaBackend::Create({.ranks = 2}, &why), nullptr);
  EXPECT_THAT(why, ::testing::HasSubstr("rank"));
}

}  // namespace
}  // namespace quire

// The timed cases give right results on every machine, and their checks find a wrong one.
#include "tests/kernels/timed_cases.h"

#include <gtest/gtest.h>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

// Larger weights differ from these only in memory traffic, and take minutes under a sanitizer.
constexpr double kMostFlops = 3e8;
constexpr size_t kMostWeightBytes = 8u << 20;

TEST(TimedCasesTest, ProductsAreRight) {
  int cases = 0;
  for (const MatMulShape& shape : MatMulShapes()) {
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      if (shape.weight_bytes() > kMostWeightBytes) return;
      SCOPED_TRACE(machine.name() + " " + shape.name());
      MatMulCase c(shape, backend);
      if (c.flops() > kMostFlops) return;
      EXPECT_FALSE(c.Right());  // nothing ran yet
      c.Run();
      EXPECT_TRUE(c.Right());
      c.out().row<float>(0)[0] += 0.01f;
      EXPECT_FALSE(c.Right());
      ++cases;
    });
  }
  EXPECT_GE(cases, 8);
}

TEST(TimedCasesTest, AttentionIsRight) {
  int cases = 0;
  for (const AttentionShape& shape : AttentionShapes()) {
    if (shape.flops() > kMostFlops) continue;
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name() + " " + shape.name());
      AttentionCase c(shape, backend);
      EXPECT_FALSE(c.Right());
      c.Run();
      EXPECT_TRUE(c.Right());
      c.out().row<float>(0)[1] += 0.01f;
      EXPECT_FALSE(c.Right());
      ++cases;
    });
  }
  EXPECT_GE(cases, 4);
}

TEST(TimedCasesTest, DrawsAreRight) {
  for (const SampleSetting& setting : SampleSettings()) {
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name() + " " + setting.name + " of " + std::to_string(setting.vocab));
      SampleCase c(setting, backend);
      c.Run();
      EXPECT_TRUE(c.Right());
      // The least likely token is never the answer.
      const auto least = std::min_element(c.row().begin(), c.row().end()) - c.row().begin();
      c.result().token = static_cast<int32_t>(least);
      EXPECT_FALSE(c.Right());
    });
  }
}

}  // namespace
}  // namespace quire

// GatherRows copies exactly the listed rows in order, repeats included.
#include <gtest/gtest.h>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

TEST(GatherRowsTest, CopiesTheNamedRows) {
  Random random(1);
  Array x = Array::Normal(random, DType::kF32, {23, 65});
  for (std::vector<int32_t> rows : {std::vector<int32_t>{}, {22}, {5, 0, 5, 22, 1}}) {
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name());
      Array out(DType::kF32, {static_cast<int64_t>(rows.size()), 65});
      backend.GatherRows({.x = x.view(), .rows = rows.data(), .out = out.view()});
      for (size_t r = 0; r < rows.size(); ++r) {
        for (int64_t i = 0; i < 65; ++i) ASSERT_EQ(out[r * 65 + i], x[rows[r] * 65 + i]);
      }
    });
  }
}

}  // namespace
}  // namespace quire

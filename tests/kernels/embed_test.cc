// Embed copies exactly the rows of the ids, and writes zeros for ids of other ranks.
#include <gtest/gtest.h>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

TEST(EmbedTest, CopiesRowsAndZeroesRowsOfOtherRanks) {
  for (DType dtype : kFloatTypes) {
    for (int64_t width : {1, 17, 64}) {
      Random random(width);
      Array table = Array::Normal(random, dtype, {10, width});
      std::vector<int32_t> ids;
      for (int i = 0; i < 300; ++i) ids.push_back(static_cast<int32_t>(random.Below(40)));
      for (size_t tokens : {0, 1, 300}) {
        OnEveryMachine([&](Backend& backend, const Machine& machine) {
          SCOPED_TRACE(machine.name());
          Array out(DType::kF32, {static_cast<int64_t>(tokens), width});
          out.Fill(NAN);
          backend.Embed(
              {.ids = ids.data(), .table = table.view(), .vocab_begin = 20, .out = out.view()});
          for (size_t t = 0; t < tokens; ++t) {
            const bool mine = ids[t] >= 20 && ids[t] < 30;
            for (int64_t i = 0; i < width; ++i) {
              ASSERT_EQ(out[t * width + i], mine ? table[(ids[t] - 20) * width + i] : 0.0);
            }
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace quire

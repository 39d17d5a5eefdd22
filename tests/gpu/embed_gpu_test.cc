// Embed on the device: rows of any type in any other, zeros for ids of other ranks. Exact.
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

TEST(EmbedGpuTest, CopiesRowsAndZeroesRowsOfOtherRanks) {
  constexpr int64_t kVocab = 50;
  constexpr int32_t kBegin = 1000;
  for (int64_t tokens : {1, 3, 300}) {
    for (int64_t width : {8, 896, 4096, 5120}) {
      for (DType from : kFloatTypes) {
        for (DType to : kFloatTypes) {
          Random random(static_cast<uint64_t>(tokens * 100 + width));
          Array table = Array::Normal(random, from, {kVocab, width});
          DeviceTensor on_device(from, kVocab, width, table, 8);
          std::vector<int32_t> ids(static_cast<size_t>(tokens));
          for (int32_t& id : ids) id = kBegin - 3 + static_cast<int32_t>(random.Below(kVocab + 6));
          DeviceArray<int32_t> device_ids(ids);
          DeviceTensor out(to, tokens, width, 16);
          cuda::Embed({.ids = device_ids.data(),
                       .table = on_device.view(),
                       .vocab_begin = kBegin,
                       .out = out.view()},
                      TestDevice());
          Array expected(to, {tokens, width});
          for (int64_t t = 0; t < tokens; ++t) {
            const int64_t row = ids[static_cast<size_t>(t)] - kBegin;
            for (int64_t i = 0; i < width; ++i) {
              const bool here = row >= 0 && row < kVocab;
              expected.Set(t * width + i, here ? static_cast<float>(table[row * width + i]) : 0.0f);
            }
          }
          ASSERT_TRUE(out.Get().SameBits(expected))
              << tokens << " of " << width << " " << Name(from) << " to " << Name(to);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::gpu

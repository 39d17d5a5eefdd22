// GatherRows on the device: bytes of rows, of any type, width and alignment. Exact.
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

TEST(GatherRowsGpuTest, CopiesRowsOfAnyTypeWidthAndStride) {
  constexpr int64_t kRows = 40;
  for (DType dtype : kFloatTypes) {
    for (int64_t width : {1, 33, 97, 128, 4096, 5000}) {
      for (int64_t gap : {0, 1, 8}) {
        Random random(static_cast<uint64_t>(width * 10 + gap));
        Array x = Array::Normal(random, dtype, {kRows, width});
        DeviceTensor on_device(dtype, kRows, width, x, gap);
        for (int64_t count : {1, 7, 256}) {
          std::vector<int32_t> rows(static_cast<size_t>(count));
          for (int32_t& row : rows) row = static_cast<int32_t>(random.Below(kRows));
          DeviceArray<int32_t> device_rows(rows);
          DeviceTensor out(dtype, count, width, 8 - gap);
          cuda::GatherRows({.x = on_device.view(), .rows = device_rows.data(), .out = out.view()},
                           TestDevice());
          Array got = out.Get();
          for (int64_t r = 0; r < count; ++r) {
            ASSERT_EQ(RowBytes(got, r, width, dtype),
                      RowBytes(x, rows[static_cast<size_t>(r)], width, dtype));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::gpu

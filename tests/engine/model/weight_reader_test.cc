// Slices of stored matrices, of columns above all: the numbers, and how little of a file is read.
#include "engine/model/checkpoint/weight_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "engine/model/checkpoint/weights.h"
#include "tests/engine/model/temp_dir.h"

namespace quire::testing {
namespace {

constexpr int64_t kRows = 48, kColumns = 16384;

// Exact in every type, and another number at any other column of a slice.
float ValueAt(int64_t row, int64_t column) {
  return static_cast<float>((row * 31 + column * 7) % 251);
}

std::string OneMatrix() {
  std::string data;
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    const float value = ValueAt(i / kColumns, i % kColumns);
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  const std::string header =
      R"({"w": {"dtype": "F32", "shape": [48, 16384], "data_offsets": [0, )" +
      std::to_string(data.size()) + "]}}";
  return SafetensorsBytes(header, data);
}

// Bytes that this process has read by system calls.
int64_t BytesRead() {
  std::ifstream io("/proc/self/io");
  std::string name;
  int64_t bytes = -1;
  while (io >> name >> bytes && name != "rchar:") {
  }
  return bytes;
}

class WeightReaderTest : public ::testing::TestWithParam<DType> {
 protected:
  WeightReaderTest() { dir_.Write("model.safetensors", OneMatrix()); }

  // Expects the numbers of the rectangle.
  void Load(ShardRange rows, ShardRange columns) {
    const WeightSpec spec{
        .dtype = GetParam(),
        .rows = rows.count,
        .columns = columns.count,
        .parts = {{.name = "w", .shape = {kRows, kColumns}, .rows = rows, .columns = columns}}};
    const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir_.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    for (const bool in_place : {false, true}) {
      const int64_t before = BytesRead();
      const absl::StatusOr<Weights> weights = Weights::Load(
          *checkpoint, {&spec, 1}, [](const std::string&) { return false; },
          {.threads = 2, .in_place = in_place}, *backend_);
      bytes_read_ = BytesRead() - before;
      ASSERT_TRUE(weights.ok()) << weights.status();
      const TensorView& view = (*weights)[0];
      for (int64_t i = 0; i < view.size(); ++i) {
        float value = 0;
        DispatchFloat(GetParam(), [&](auto tag) {
          std::memcpy(&tag, view.ptr<char>() + i * static_cast<int64_t>(sizeof tag), sizeof tag);
          value = ToFloat(tag);
        });
        ASSERT_EQ(value, ValueAt(rows.begin + i / columns.count, columns.begin + i % columns.count))
            << i;
      }
    }
  }

  const TempDir dir_;
  const std::unique_ptr<Backend> backend_ = std::move(CreateCpuBackends(1, 1)[0]);
  int64_t bytes_read_ = 0;
};

TEST_P(WeightReaderTest, ARankReadsItsColumnsAlone) {
  constexpr int64_t kAll = kRows * kColumns * int64_t{sizeof(float)};
  for (const int32_t ranks : {2, 4, 16}) {
    for (const int32_t rank : {0, ranks - 1}) {
      Load({0, kRows}, Shard(kColumns, {rank, ranks}));
      EXPECT_GE(bytes_read_, kAll / ranks);
      EXPECT_LE(bytes_read_, kAll / ranks + 4096);
    }
  }
}

TEST_P(WeightReaderTest, ARankReadsItsRowsAlone) {
  constexpr int64_t kAll = kRows * kColumns * int64_t{sizeof(float)};
  for (const int32_t rank : {0, 1, 2, 3}) {
    Load(Shard(kRows, {rank, 4}), {0, kColumns});
    EXPECT_LE(bytes_read_, kAll / 4 + 4096);
  }
}

TEST_P(WeightReaderTest, FewColumnsAreReadWithTheirRows) {
  Load({5, 7}, {16000, 100});
  Load({0, kRows}, {3, 1});
}

INSTANTIATE_TEST_SUITE_P(Types, WeightReaderTest,
                         ::testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace quire::testing

// Slices of stored matrices, of columns above all: the numbers, and how little of a file is read.
#include "engine/model/checkpoint/weight_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
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

// A matrix that becomes 8-bit while it is read has the scales and elements of the definition, in
// double. A rank's columns have the scales of whole rows.
class EightBitReadingTest : public ::testing::Test {
 protected:
  static constexpr int64_t kHeight = 5, kWidth = 96;

  // Rows of usual numbers, of zeros, of the least floats, of one large number, and of ties.
  static float At(int64_t row, int64_t column) {
    const auto x = static_cast<float>((row * 37 + column * 11) % 101 - 50);
    if (row == 1) return 0;
    if (row == 2) return x * 0x1p-140f;
    if (row == 3) return column == 70 ? 3e38f : x * 1e30f;
    return row == 4 ? (column == 0 ? 448.0f : static_cast<float>(column) + 0.5f) : x * 0.013f;
  }
  EightBitReadingTest() {
    std::string data;
    for (int64_t i = 0; i < kHeight * kWidth; ++i) {
      const float x = At(i / kWidth, i % kWidth);
      data.append(reinterpret_cast<const char*>(&x), sizeof x);
    }
    const std::string header = R"({"w": {"dtype": "F32", "shape": [5, 96], "data_offsets": [0, )" +
                               std::to_string(data.size()) + "]}}";
    dir_.Write("model.safetensors", SafetensorsBytes(header, data));
  }

  // The 8-bit value nearest to x, the even one of two.
  static double Nearest(double x) {
    double nearest = 0, least = HUGE_VAL;
    for (int code = 0; code < 256; ++code) {
      const double value = ToFloat(std::bit_cast<E4M3>(static_cast<uint8_t>(code)));
      const double distance = std::abs(value - x);
      if (std::isnan(value) || distance > least) continue;
      if (distance == least && code % 2 == 1) continue;
      nearest = value;
      least = distance;
    }
    return nearest;
  }

  void Check(const TensorView& got, ShardRange rows, ShardRange columns) {
    for (int64_t r = 0; r < rows.count; ++r) {
      double largest = 0;
      for (int64_t c = 0; c < kWidth; ++c) {
        largest = std::max(largest, std::abs(static_cast<double>(At(rows.begin + r, c))));
      }
      const double size = std::max(largest, 0x1p-100);
      ASSERT_NEAR(got.scales[r], size / 448, size * 0x1p-32) << r;
      for (int64_t c = 0; c < columns.count; ++c) {
        const double x = At(rows.begin + r, columns.begin + c);
        const float element = ToFloat(got.ptr<E4M3>()[r * got.row_stride + c]);
        ASSERT_EQ(element, Nearest(x * (448 / size))) << r << " " << c;
      }
    }
  }

  const TempDir dir_;
};

TEST_F(EightBitReadingTest, GivesTheNearestElementsOfWholeRows) {
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 1)[0]);
  for (const ShardRange columns : {ShardRange{0, 96}, ShardRange{0, 48}, ShardRange{48, 48}}) {
    for (const ShardRange rows : {ShardRange{0, 5}, ShardRange{2, 3}}) {
      const WeightSpec spec{
          .dtype = DType::kE4M3,
          .rows = rows.count,
          .columns = columns.count,
          .parts = {{.name = "w", .shape = {kHeight, kWidth}, .rows = rows, .columns = columns}}};
      for (const bool in_place : {false, true}) {
        const absl::StatusOr<Weights> weights = Weights::Load(
            *checkpoint, {&spec, 1}, [](const std::string&) { return false; },
            {.threads = 2, .in_place = in_place}, *backend);
        ASSERT_TRUE(weights.ok()) << weights.status();
        Check((*weights)[0], rows, columns);
      }
    }
  }
}

}  // namespace
}  // namespace quire::testing

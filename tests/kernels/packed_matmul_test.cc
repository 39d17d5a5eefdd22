// Packed matrices: the layout by hand, MatMul against double arithmetic and the same bits in every
// batch and on every machine, and columns in another order.
// Covers kernels/column_order.h
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/packed_matrix.h"

namespace quire {
namespace {

// Element c of the first 32 columns is c % 16 of four bits.
TEST(PackedRowTest, WordsHoldTheColumnsOfALane) {
  std::vector<uint8_t> row(16);
  for (int64_t c = 0; c < 32; ++c) PutPacked(DType::kU4, row.data(), c, c % 16);
  // Lane 0: pairs (0, 1), (8, 9), (16, 17), (24, 25), from the low bits up.
  const std::vector<uint8_t> expected = {0x80, 0x80, 0x91, 0x91, 0xa2, 0xa2, 0xb3, 0xb3,
                                         0xc4, 0xc4, 0xd5, 0xd5, 0xe6, 0xe6, 0xf7, 0xf7};
  EXPECT_EQ(row, expected);
  std::fill(row.begin(), row.end(), 0);
  for (int64_t c = 0; c < 16; ++c) PutPacked(DType::kU8, row.data(), c, 200 + c);
  const std::vector<uint8_t> bytes = {200, 201, 208, 209, 202, 203, 210, 211,
                                      204, 205, 212, 213, 206, 207, 214, 215};
  EXPECT_EQ(row, bytes);
  for (int64_t c = 0; c < 16; ++c) EXPECT_EQ(GetPacked(DType::kU8, row.data(), c), 200 + c);
}

constexpr PackedShape kShapes[] = {
    {.n = 1, .k = 32, .group = 32},
    {.n = 17, .k = 96, .group = 32, .zeros = true},
    {.n = 40, .k = 192, .group = 64},
    {.n = 67, .k = 256, .group = 128, .zeros = true},
    {.n = 33, .k = 160, .group = 0},
    {.dtype = DType::kU8, .n = 19, .k = 96, .group = 32},
    {.dtype = DType::kU8, .n = 64, .k = 256, .group = 128, .zeros = true},
    {.dtype = DType::kU8, .n = 5, .k = 224, .group = 0, .zeros = true},
};

TEST(PackedMatMulTest, MatchesDoubleArithmeticInEveryBatch) {
  for (const PackedShape& shape : kShapes) {
    Random random(static_cast<uint64_t>(shape.n * 7 + shape.k));
    PackedMatrix w(random, shape);
    constexpr int64_t kTokens = 9;
    Array x = Array::Normal(random, DType::kF32, {kTokens, shape.k});
    Array bias = Array::Normal(random, DType::kBF16, {shape.n});
    Array first;
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name() + " n=" + std::to_string(shape.n));
      Array out(DType::kF32, {kTokens, shape.n}), alone(DType::kF32, {kTokens, shape.n});
      out.Fill(NAN);
      backend.MatMul({.x = x.view(), .w = w.view(), .bias = bias.view(), .out = out.view()});
      for (int64_t t = 0; t < kTokens; ++t) {
        backend.MatMul({.x = x.view().Rows(t, 1),
                        .w = w.view(),
                        .bias = bias.view(),
                        .out = alone.view().Rows(t, 1)});
      }
      ASSERT_TRUE(alone.SameBits(out));
      if (first.size() == 0) first = out.Copy();
      ASSERT_TRUE(out.SameBits(first));
    });
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t j = 0; j < shape.n; ++j) {
        double sum = bias[j], size = std::abs(bias[j]);
        for (int64_t i = 0; i < shape.k; ++i) {
          sum += x[t * shape.k + i] * w.At(j, i);
          size += std::abs(x[t * shape.k + i] * w.At(j, i));
        }
        ASSERT_LE(std::abs(first[t * shape.n + j] - sum),
                  (SumError(shape.k) + 2 * kRounding) * size)
            << "at token " << t << " row " << j;
      }
    }
  }
}

// Rows of a matrix, and columns of whole groups, are matrices with the same scales.
TEST(PackedMatMulTest, RowsAndColumnsAreViews) {
  Random random(3);
  PackedMatrix w(random, {.n = 24, .k = 256, .group = 64, .zeros = true});
  const TensorView part = w.view().Rows(5, 16).Columns(64, 128);
  std::vector<float> row(128);
  for (int64_t r = 0; r < 16; ++r) {
    WidenPackedRow(part, r, row.data());
    for (int64_t c = 0; c < 128; ++c) {
      ASSERT_FLOAT_EQ(row[static_cast<size_t>(c)], static_cast<float>(w.At(r + 5, c + 64)));
    }
  }
}

TEST(GatherColumnsTest, CopiesTheNamedColumns) {
  Random random(4);
  constexpr int64_t kWidth = 67;
  Array x = Array::Normal(random, DType::kF32, {5, kWidth + 3});
  std::vector<int32_t> columns(kWidth);
  for (int64_t c = 0; c < kWidth; ++c) columns[c] = static_cast<int32_t>((c * 29 + 11) % kWidth);
  OnEveryMachine([&](Backend& backend, const Machine& machine) {
    SCOPED_TRACE(machine.name());
    Array out(DType::kF32, {5, kWidth});
    backend.GatherColumns(
        {.x = x.view().Columns(3, kWidth), .columns = columns.data(), .out = out.view()});
    for (int64_t t = 0; t < 5; ++t) {
      for (int64_t c = 0; c < kWidth; ++c) {
        ASSERT_EQ(out[t * kWidth + c], x[t * (kWidth + 3) + 3 + columns[c]]);
      }
    }
  });
}

// Random integers of benchmarks fill the range evenly.
TEST(PackedMatMulTest, FillUniformFillsEveryBit) {
  Array bytes(DType::kI32, {1024});
  TensorView out(bytes.data(), DType::kU4, {32, 256});
  OnEveryMachine([&](Backend& backend, const Machine& machine) {
    SCOPED_TRACE(machine.name());
    backend.FillUniform({.out = out, .seed = 7, .amplitude = 1});
    std::vector<int> counts(16);
    for (int64_t r = 0; r < 32; ++r) {
      for (int64_t c = 0; c < 256; ++c) {
        ++counts[GetPacked(DType::kU4, out.ptr<uint8_t>() + r * 128, c)];
      }
    }
    // 512 each, with a standard deviation of 22.
    for (const int count : counts) EXPECT_NEAR(count, 512, 110);
  });
}

}  // namespace
}  // namespace quire

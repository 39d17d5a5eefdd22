// Split products on rank threads against the whole product in double.
#include "engine/model/linear.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>
#include <vector>

namespace quire {
namespace {

using Floats = std::vector<float>;

Floats Random(size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(size);
  for (float& v : values) v = normal(generator);
  return values;
}

TensorView View(Floats& values, int64_t rows) {
  return {values.data(), DType::kF32, {rows, static_cast<int64_t>(values.size()) / rows}};
}

void OnRanks(int32_t ranks, const std::function<void(TpInfo, Backend&)>& body) {
  std::vector<std::unique_ptr<Backend>> backends = CreateCpuBackends(ranks, ranks);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { body({rank, ranks}, *backends[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
}

// x * w^T + bias in double; w is [n, k], rows of x are k long.
Floats Reference(const Floats& x, const Floats& w, const Floats& bias, size_t k) {
  Floats out;
  for (size_t t = 0; t < x.size() / k; ++t) {
    for (size_t j = 0; j < w.size() / k; ++j) {
      double sum = bias.empty() ? 0.0 : bias[j];
      for (size_t i = 0; i < k; ++i) sum += double{x[t * k + i]} * w[j * k + i];
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

void ExpectNear(const Floats& a, const Floats& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4) << i;
}

constexpr int64_t kTokens = 3, kIn = 24, kOut = 10;

TEST(LinearTest, ColumnSplitGivesTheRankItsOutputs) {
  Floats x = Random(kTokens * kIn, 1), w = Random(kOut * kIn, 2), bias = Random(kOut, 3);
  const Floats expected = Reference(x, w, bias, kIn);
  OnRanks(2, [&](TpInfo tp, Backend& backend) {
    const ShardRange shard = Shard(kOut, tp);
    const TensorView part_of_bias(bias.data() + shard.begin, DType::kF32, {shard.count});
    const Linear linear(View(w, kOut).Rows(shard.begin, shard.count), part_of_bias);
    Floats out(kTokens * shard.count);
    linear.Apply(backend, View(x, kTokens), View(out, kTokens));
    Floats slice;
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto begin = expected.begin() + t * kOut + shard.begin;
      slice.insert(slice.end(), begin, begin + shard.count);
    }
    ExpectNear(out, slice);
  });
}

TEST(LinearTest, RowSplitsAddUpToTheSameSumOnEveryRankWithTheBiasOnce) {
  Floats x = Random(kTokens * kIn, 4), w = Random(kOut * kIn, 5), bias = Random(kOut, 6);
  const Floats expected = Reference(x, w, bias, kIn);
  Floats outs[2];
  OnRanks(2, [&](TpInfo tp, Backend& backend) {
    const ShardRange shard = Shard(kIn, tp);
    const TensorView whole_bias(bias.data(), DType::kF32, {kOut});
    const Linear linear(View(w, kOut).Columns(shard.begin, shard.count),
                        tp.rank == 0 ? whole_bias : TensorView());
    outs[tp.rank].resize(kTokens * kOut);
    const TensorView out = View(outs[tp.rank], kTokens);
    linear.Apply(backend, View(x, kTokens).Columns(shard.begin, shard.count), out);
    backend.AllReduceSum(out);
  });
  ExpectNear(outs[0], expected);
  EXPECT_EQ(outs[0], outs[1]);
}

// 33 rows in runs of a multiple of 8: over 4 ranks 16, 16, 1 and none.
TEST(VocabularyTest, PaddedRowsNeitherEmbedNorReachTheLogits) {
  constexpr int64_t kVocab = 33, kHidden = 8;
  const std::vector<int32_t> ids = {0, 32, 17};
  Floats table = Random(kVocab * kHidden, 7), x = Random(kTokens * kHidden, 8);
  const Floats expected = Reference(x, table, {}, kHidden);
  for (const auto& [ranks, rows] :
       {std::pair<int32_t, int64_t>{1, 33}, {2, 24}, {3, 16}, {4, 16}}) {
    OnRanks(ranks, [&, ranks = ranks, rows = rows](TpInfo tp, Backend& backend) {
      const int64_t local = Vocabulary::LocalRows(kVocab, tp);
      EXPECT_EQ(local, rows);
      Floats slice(local * kHidden, 0.0f);
      for (int64_t i = 0; i < local && tp.rank * local + i < kVocab; ++i) {
        const auto row = table.begin() + (tp.rank * local + i) * kHidden;
        std::copy(row, row + kHidden, slice.begin() + i * kHidden);
      }
      const Vocabulary vocabulary(View(slice, local), View(slice, local), tp);

      Floats embedded(kTokens * kHidden);
      vocabulary.Embed(backend, ids.data(), View(embedded, kTokens));
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t i = 0; i < kHidden; ++i) {
          EXPECT_EQ(embedded[t * kHidden + i], table[ids[t] * kHidden + i]);
        }
      }

      Floats logits(kTokens * local), of_rank(kTokens * local, 0.0f);
      vocabulary.Logits(backend, View(x, kTokens), View(logits, kTokens));
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t i = 0; i < local && tp.rank * local + i < kVocab; ++i) {
          of_rank[t * local + i] = expected[t * kVocab + tp.rank * local + i];
        }
      }
      ExpectNear(logits, of_rank);
    });
  }
}

}  // namespace
}  // namespace quire

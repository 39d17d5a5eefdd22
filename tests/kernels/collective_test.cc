// Collectives between rank threads: every rank gets the same bits, summed in rank order.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

// Runs fn(rank, backend) on one thread per rank.
void OnRanks(int ranks, const std::function<void(int, Backend&)>& fn) {
  const auto backends = CreateCpuBackends(ranks, ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&, r] { fn(r, *backends[r]); });
  for (std::thread& t : threads) t.join();
}

TEST(CollectiveTest, AllReduceAddsInRankOrder) {
  for (int ranks : {1, 2, 4}) {
    for (auto [tokens, width] :
         {std::pair<int64_t, int64_t>{0, 8}, {1, 1}, {1, 3}, {7, 130}, {64, 33}}) {
      std::vector<Array> inputs;
      for (int r = 0; r < ranks; ++r) {
        Random random(100 * ranks + r);
        inputs.push_back(Array::Normal(random, DType::kF32, {tokens, width}));
      }
      Array expected = inputs[0].Copy();
      for (int r = 1; r < ranks; ++r) {
        for (int64_t i = 0; i < expected.size(); ++i) expected.floats()[i] += inputs[r].floats()[i];
      }
      std::vector<int> same(ranks, 0);
      OnRanks(ranks, [&](int rank, Backend& backend) {
        for (int repeat = 0; repeat < 50; ++repeat) {
          Array x = inputs[rank].Copy();
          backend.AllReduceSum(x.view());
          same[rank] += x.SameBits(expected) ? 1 : 0;
        }
      });
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(same[r], 50) << ranks << " ranks, rank " << r;
    }
  }
}

TEST(CollectiveTest, AllReduceSumsColumnsOfAWiderMatrix) {
  OnRanks(2, [&](int, Backend& backend) {
    Array wide(DType::kF32, {5, 20});
    wide.Fill(1.0f);
    backend.AllReduceSum(wide.view().Columns(4, 9));
    for (int64_t i = 0; i < wide.size(); ++i) {
      const bool inside = i % 20 >= 4 && i % 20 < 13;
      EXPECT_EQ(wide[i], inside ? 2.0 : 1.0);
    }
  });
}

TEST(CollectiveTest, AllGatherConcatenatesInRankOrder) {
  for (int ranks : {1, 2, 4}) {
    OnRanks(ranks, [&](int rank, Backend& backend) {
      for (int64_t tokens : {0, 1, 13}) {
        constexpr int64_t kWidth = 17;
        Array x(DType::kF32, {tokens, kWidth}), out(DType::kF32, {tokens, kWidth * ranks});
        for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<float>(1000 * rank + i));
        backend.AllGather(x.view(), out.view());
        for (int64_t i = 0; i < out.size(); ++i) {
          const int64_t t = i / (kWidth * ranks), r = i / kWidth % ranks, column = i % kWidth;
          ASSERT_EQ(out[i], static_cast<double>(1000 * r + t * kWidth + column));
        }
      }
    });
  }
}

TEST(CollectiveTest, RanksOfDifferentSpeedStayInStep) {
  OnRanks(4, [&](int rank, Backend& backend) {
    Random random(rank);
    for (int round = 0; round < 300; ++round) {
      if (random.Below(8) == 0) std::this_thread::yield();
      Array x(DType::kF32, {1, 5});
      x.Fill(static_cast<float>(round + rank));
      backend.AllReduceSum(x.view());
      for (int64_t i = 0; i < 5; ++i) ASSERT_EQ(x[i], 4.0 * round + 6.0);
    }
  });
}

}  // namespace
}  // namespace quire

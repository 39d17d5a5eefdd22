// Collectives between rank threads, over memory and over sockets: every rank gets the same bits,
// summed in rank order.
// Covers kernels/cpu/group_collectives.cc, kernels/cpu/rank_group.cc
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

#include "tests/kernels/cases.h"
#include "tests/kernels/forked_ranks.h"
#include "tests/kernels/thread_exchange.h"

namespace quire {
namespace {

enum class Medium : uint8_t { kMemory, kSockets };

class CollectiveTest : public ::testing::TestWithParam<Medium> {
 protected:
  // Runs fn(rank, backend) on one thread per rank.
  static void OnRanks(int ranks, const std::function<void(int, Backend&)>& fn) {
    const bool sockets = GetParam() == Medium::kSockets;
    auto backends = CreateCpuBackends(ranks, ranks);
    ThreadExchange::Table table(ranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        ThreadExchange exchange(table, r);
        std::string why;
        if (sockets) {
          backends[r] = CreateCpuBackend({.rank = r,
                                          .ranks = ranks,
                                          .one_host = false,
                                          .host = "127.0.0.1",
                                          .exchange = &exchange},
                                         1, &why);
        }
        ASSERT_NE(backends[r], nullptr) << why;
        fn(r, *backends[r]);
      });
    }
    for (std::thread& t : threads) t.join();
  }
};

INSTANTIATE_TEST_SUITE_P(Media, CollectiveTest,
                         ::testing::Values(Medium::kMemory, Medium::kSockets),
                         [](const auto& info) {
                           return info.param == Medium::kMemory ? "Memory" : "Sockets";
                         });

TEST_P(CollectiveTest, AllReduceAddsInRankOrder) {
  for (int ranks : {1, 2, 4}) {
    for (auto [tokens, width] :
         {std::pair<int64_t, int64_t>{0, 8}, {1, 1}, {1, 3}, {7, 130}, {64, 33}, {3, 200'001}}) {
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
        for (int repeat = 0; repeat < 20; ++repeat) {
          Array x = inputs[rank].Copy();
          backend.AllReduceSum(x.view());
          same[rank] += x.SameBits(expected) ? 1 : 0;
        }
      });
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(same[r], 20) << ranks << " ranks, rank " << r;
    }
  }
}

TEST(ProcessRanksTest, SumAndShareRows) {
  for (const int ranks : {2, 4}) {
    EXPECT_TRUE(testing::OnForkedRanks(ranks, [&](const RankPlace& alone) {
      std::atomic<uint64_t> calls{0};
      RankPlace place = alone;
      place.collectives = &calls;
      std::string why;
      const std::unique_ptr<Backend> backend = CreateCpuBackend(place, 1, &why);
      if (backend == nullptr) return false;
      for (int round = 0; round < 200; ++round) {
        Array x(DType::kF32, {3, 5}), out(DType::kF32, {MostRows(3, ranks), 5 * ranks});
        x.Fill(static_cast<float>(round + place.rank));
        backend->ColumnsToRows(x.view(), out.view());
        for (int64_t i = 0; i < RowsOf(place.rank, ranks, 3).count * 5 * ranks; ++i) {
          if (out[i] != round + static_cast<double>(i / 5 % ranks)) return false;
        }
        backend->AllReduceSum(x.view());
        for (int64_t i = 0; i < x.size(); ++i) {
          if (x[i] != ranks * round + ranks * (ranks - 1) / 2.0) return false;
        }
      }
      return calls == 400;
    })) << ranks;
  }
}

// A rank that cannot open the memory stops all ranks, with a reason.
TEST(ProcessRanksTest, SayThatTheyCannotJoin) {
  class Elsewhere final : public RankExchange {
   public:
    explicit Elsewhere(RankExchange& exchange) : exchange_(exchange) {}
    std::vector<std::string> Share(const std::string& bytes) override {
      std::vector<std::string> all = exchange_.Share(bytes);
      if (all.front().starts_with("/proc")) all.front() = "/proc/0/fd/0";
      return all;
    }
    void Lost(const std::string& why) override { exchange_.Lost(why); }

   private:
    RankExchange& exchange_;
  };
  EXPECT_TRUE(testing::OnForkedRanks(2, [](const RankPlace& real) {
    Elsewhere elsewhere(*real.exchange);
    RankPlace place = real;
    if (place.rank == 1) place.exchange = &elsewhere;
    std::string why;
    return CreateCpuBackend(place, 1, &why) == nullptr &&
           why.find("/proc/0/fd/0") != std::string::npos;
  }));
}

TEST_P(CollectiveTest, SumRmsNormIsTheNormOfTheSum) {
  constexpr int64_t kTokens = 5, kWidth = 96;
  Random random(9);
  const Array weight = Array::Normal(random, DType::kF32, {kWidth});
  const Array residual = Array::Normal(random, DType::kF32, {kTokens, kWidth});
  const Array a = Array::Normal(random, DType::kF32, {kTokens, kWidth});
  const Array b = Array::Normal(random, DType::kF32, {kTokens, kWidth});
  OnRanks(2, [&](int rank, Backend& backend) {
    Array x = rank == 0 ? a.Copy() : b.Copy();
    Array sum = residual.Copy(), w = weight.Copy();
    backend.SumRmsNorm(
        {.x = x.view(), .residual = sum.view(), .weight = w.view(), .eps = 1e-5f, .out = x.view()});
    for (int64_t t = 0; t < kTokens; ++t) {
      double squares = 0;
      for (int64_t i = t * kWidth; i < (t + 1) * kWidth; ++i) {
        EXPECT_NEAR(sum[i], residual[i] + a[i] + b[i], 1e-6);
        squares += sum[i] * sum[i];
      }
      const double rms = std::sqrt(squares / kWidth + 1e-5);
      for (int64_t i = 0; i < kWidth; ++i) {
        EXPECT_NEAR(x[t * kWidth + i], sum[t * kWidth + i] / rms * weight[i], 1e-5);
      }
    }
  });
}

// Element (row, column) of the whole matrix; any size of the pieces that pass at once would do.
float Element(int64_t row, int64_t column) {
  return static_cast<float>(row * 65536 + column % 65536);
}

TEST_P(CollectiveTest, ColumnsToRowsGivesEachRankWholeRows) {
  for (const auto& [ranks, rows, width] : {std::tuple<int, int64_t, int64_t>{1, 3, 8},
                                           {2, 1, 8},
                                           {2, 5, 17},
                                           {4, 6, 8},
                                           {4, 9, 130},
                                           {2, 3, 400'000},
                                           {3, 7, 90'000}}) {
    OnRanks(ranks, [&, ranks = ranks, rows = rows, width = width](int rank, Backend& backend) {
      Array x(DType::kF32, {rows, width}), out(DType::kF32, {MostRows(rows, ranks), width * ranks});
      for (int64_t i = 0; i < x.size(); ++i) {
        x.Set(i, Element(i / width, rank * width + i % width));
      }
      backend.ColumnsToRows(x.view(), out.view());
      const RowRange mine = RowsOf(rank, ranks, rows);
      for (int64_t i = 0; i < mine.count * width * ranks; ++i) {
        const int64_t row = mine.begin + i / (width * ranks), column = i % (width * ranks);
        ASSERT_EQ(out[i], double{Element(row, column)}) << ranks << " ranks, row " << row;
      }
    });
  }
}

TEST_P(CollectiveTest, ShareSamplesGivesEveryRankEveryDraw) {
  for (const auto& [ranks, rows] : {std::pair<int, int32_t>{2, 1}, {2, 5}, {4, 2}, {4, 9}}) {
    OnRanks(ranks, [&, ranks = ranks, rows = rows](int rank, Backend& backend) {
      std::vector<SampleResult> results(rows);
      std::vector<int32_t> drawn(rows, -1);
      std::vector<SampleJob> jobs(rows);
      for (int32_t r = 0; r < rows; ++r) jobs[r].drawn = r == 0 ? nullptr : &drawn[r];
      const RowRange mine = RowsOf(rank, ranks, rows);
      for (int64_t r = mine.begin; r < mine.begin + mine.count; ++r) {
        const auto token = static_cast<int32_t>(7 * r + 1);
        results[r] = {.token = token, .logprob = -static_cast<float>(r), .nonfinite = token % 2};
      }
      backend.ShareSamples({.jobs = jobs.data(), .results = results.data(), .num_rows = rows});
      for (int32_t r = 0; r < rows; ++r) {
        EXPECT_EQ(results[r].token, 7 * r + 1);
        EXPECT_EQ(results[r].logprob, -static_cast<float>(r));
        EXPECT_EQ(results[r].nonfinite, (7 * r + 1) % 2);
        EXPECT_EQ(drawn[r], r == 0 ? -1 : 7 * r + 1);
      }
    });
  }
}

TEST_P(CollectiveTest, RanksOfDifferentSpeedStayInStep) {
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

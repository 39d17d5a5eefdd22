// Covers kernels/cuda/group/communicator.cc, kernels/cuda/group/nccl_group.cc,
// kernels/cuda/group/peer_memory.cc, kernels/cuda/group/share_rows.cu,
// kernels/cuda/group/sum_rms_norm.cu
//
// The collectives between ranks on GPUs against sums computed here, each rank in a process of its
// own. 2, 4 and 8 ranks run everywhere: where there are fewer GPUs, ranks share them and take
// turns, so there are fewer calls; NCCL, which refuses that, is left out.
#include <cstdlib>
#include <random>

#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/group/communicator.h"
#include "tests/gpu/forked_ranks.h"
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

using cuda::Communicator;
using cuda::CommunicatorOptions;
using cuda::SumMethod;

constexpr int32_t kMaxRows = 300;

class GroupGpuTest : public ::testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  bool HasGpuForEach() const { return CountGpus() >= ranks(); }
};

std::unique_ptr<Communicator> Join(const RankPlace& place, const cuda::Device& device,
                                   SumMethod method, int32_t hidden) {
  std::string why;
  std::unique_ptr<Communicator> group = Communicator::Create(
      CommunicatorOptions{.place = place, .max_rows = kMaxRows, .hidden = hidden, .forced = method},
      device, &why);
  if (group == nullptr) std::fprintf(stderr, "rank %d: %s\n", place.rank, why.c_str());
  return group;
}

cuda::Device DeviceOf(const RankPlace& place) {
  cuda::Device device = TestDevice();
  device.ordinal = place.rank % CountGpus();
  return device;
}

// What rank `rank` adds to a sum: small integers and negative zeros, so that every sum is exact.
Array PartOf(int rank, DType dtype, int64_t rows, int64_t width, int seed) {
  Array part(dtype, {rows, width});
  std::mt19937 random(static_cast<uint32_t>(1000 * seed + rank));
  for (int64_t i = 0; i < part.size(); ++i) {
    const auto value = static_cast<int>(random() % 33) - 16;
    part.Set(i, value == 0 ? -0.0f : static_cast<float>(value));
  }
  return part;
}
Array SumOf(int ranks, DType dtype, int64_t rows, int64_t width, int seed) {
  Array sum(dtype, {rows, width});
  for (int64_t i = 0; i < sum.size(); ++i) sum.Set(i, 0);
  for (int r = 0; r < ranks; ++r) {
    const Array part = PartOf(r, dtype, rows, width, seed);
    for (int64_t i = 0; i < sum.size(); ++i) {
      sum.Set(i, static_cast<float>(sum[i] + part[i]));
    }
  }
  return sum;
}

bool Same(const Array& got, const Array& expected, const char* what) {
  for (int64_t i = 0; i < expected.size(); ++i) {
    if (got[i] == expected[i]) continue;
    std::fprintf(stderr, "%s: element %lld is %g, not %g\n", what, static_cast<long long>(i),
                 got[i], expected[i]);
    return false;
  }
  return true;
}

bool SumsAreExact(const RankPlace& place, SumMethod method) {
  const cuda::Device device = DeviceOf(place);
  const bool shared = CountGpus() < place.ranks;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t width : {64, 4096, 12288}) {
      const auto group = Join(place, device, method, static_cast<int32_t>(width));
      if (group == nullptr) return false;
      for (const int64_t rows : {1, 3, 64, 300, 1030}) {
        // More rows than run at once, and than one call takes.
        if (rows > 300 && (shared || width != 4096)) continue;
        const int seed = static_cast<int>(rows);
        Array part = PartOf(place.rank, dtype, rows, width, seed);
        DeviceTensor x(dtype, rows, width, part);
        group->AllReduceSum(x.view());
        CUDA_CHECK(cudaStreamSynchronize(device.stream));
        if (!Same(x.Get(), SumOf(place.ranks, dtype, rows, width, seed), "sum")) return false;
      }
    }
  }
  return true;
}

TEST_P(GroupGpuTest, OneShotSumsAreExact) {
  EXPECT_TRUE(OnForkedRanks(
      ranks(), [](const RankPlace& place) { return SumsAreExact(place, SumMethod::kOneShot); }));
}
TEST_P(GroupGpuTest, TwoShotSumsAreExact) {
  EXPECT_TRUE(OnForkedRanks(
      ranks(), [](const RankPlace& place) { return SumsAreExact(place, SumMethod::kTwoShot); }));
}
TEST_P(GroupGpuTest, NcclSumsAreExact) {
  if (!HasGpuForEach()) GTEST_SKIP() << "NCCL wants a GPU for each rank";
  EXPECT_TRUE(OnForkedRanks(
      ranks(), [](const RankPlace& place) { return SumsAreExact(place, SumMethod::kNccl); }));
}

// Real numbers: the fused operation gives the bits of the sum followed by the norm on one device.
bool FusedIsSumThenNorm(const RankPlace& place, SumMethod method) {
  const cuda::Device device = DeviceOf(place);
  const bool shared = CountGpus() < place.ranks;
  for (const int64_t width : {896, 8192, 16384}) {
    const auto group = Join(place, device, method, static_cast<int32_t>(width));
    if (group == nullptr) return false;
    for (const int64_t rows : {1, 5, 64, 300}) {
      if (shared && rows > 64) continue;
      Random random(static_cast<uint64_t>(rows * 7 + width));
      Array weight = Array::Normal(random, DType::kF32, {width});
      Array before = Array::Normal(random, DType::kBF16, {rows, width});
      std::vector<Array> parts;
      for (int r = 0; r < place.ranks; ++r) {
        parts.push_back(Array::Normal(random, DType::kBF16, {rows, width}));
      }
      Array sum(DType::kBF16, {rows, width});
      for (int64_t i = 0; i < sum.size(); ++i) {
        float total = static_cast<float>(parts[0][i]);
        for (int r = 1; r < place.ranks; ++r) total += static_cast<float>(parts[r][i]);
        sum.Set(i, total);
      }
      DeviceTensor x(DType::kBF16, rows, width, parts[static_cast<size_t>(place.rank)]);
      DeviceTensor residual(DType::kBF16, rows, width, before);
      DeviceTensor expected_x(DType::kBF16, rows, width, sum);
      DeviceTensor expected_residual(DType::kBF16, rows, width, before);
      DeviceTensor device_weight(DType::kF32, 1, width, weight);
      const TensorView w(device_weight.view().data, DType::kF32, {width});
      const auto params = [&](DeviceTensor& of, DeviceTensor& onto) {
        return RmsNormParams{
            .x = of.view(), .residual = onto.view(), .weight = w, .eps = 1e-5f, .out = of.view()};
      };
      cuda::RmsNorm(params(expected_x, expected_residual), device);
      group->SumRmsNorm(params(x, residual));
      CUDA_CHECK(cudaStreamSynchronize(device.stream));
      if (!Same(residual.Get(), expected_residual.Get(), "residual")) return false;
      if (!Same(x.Get(), expected_x.Get(), "norm")) return false;
    }
  }
  return true;
}

TEST_P(GroupGpuTest, OneShotWithNormIsTheSumThenTheNorm) {
  EXPECT_TRUE(OnForkedRanks(ranks(), [](const RankPlace& place) {
    return FusedIsSumThenNorm(place, SumMethod::kOneShot);
  }));
}
TEST_P(GroupGpuTest, TwoShotWithNormIsTheSumThenTheNorm) {
  EXPECT_TRUE(OnForkedRanks(ranks(), [](const RankPlace& place) {
    return FusedIsSumThenNorm(place, SumMethod::kTwoShot);
  }));
}

// Many replays of captured sums with a rank now and then late, against sums of integers.
bool ReplaysStayExact(const RankPlace& place, SumMethod method, int replays) {
  const cuda::Device device = DeviceOf(place);
  constexpr int64_t kWidth = 4096;
  const auto group = Join(place, device, method, kWidth);
  if (group == nullptr) return false;
  struct Tensors {
    Array part, sum;
    DeviceTensor source, x;
  };
  std::vector<Tensors> all;
  for (const int64_t rows : {1, 7, 64}) {
    const int seed = static_cast<int>(rows) + 5;
    Array part = PartOf(place.rank, DType::kBF16, rows, kWidth, seed);
    Array sum = SumOf(place.ranks, DType::kBF16, rows, kWidth, seed);
    DeviceTensor source(DType::kBF16, rows, kWidth, part);
    all.push_back({std::move(part), std::move(sum), std::move(source),
                   DeviceTensor(DType::kBF16, rows, kWidth)});
  }
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  CUDA_CHECK(cudaStreamSynchronize(device.stream));
  CUDA_CHECK(cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeThreadLocal));
  for (Tensors& t : all) {
    CUDA_CHECK(cudaMemcpyAsync(t.x.view().data, t.source.view().data,
                               static_cast<size_t>(t.x.view().bytes()), cudaMemcpyDeviceToDevice,
                               device.stream));
    group->AllReduceSum(t.x.view());
  }
  CUDA_CHECK(cudaStreamEndCapture(device.stream, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&replay, graph, 0));
  std::mt19937 random(static_cast<uint32_t>(place.rank) + 1);
  for (int i = 1; i <= replays; ++i) {
    if (random() % 64 == 0) usleep(random() % 300);
    CUDA_CHECK(cudaGraphLaunch(replay, device.stream));
    if (i % (replays / 50) != 0) continue;
    CUDA_CHECK(cudaStreamSynchronize(device.stream));
    for (Tensors& t : all) {
      if (!Same(t.x.Get(), t.sum, "replayed sum")) return false;
    }
  }
  return true;
}

// Under a sanitizer, or with several ranks on one GPU, fewer.
int Replays(const RankPlace& place) {
  if (const char* count = std::getenv("GROUP_REPLAYS")) return std::atoi(count);
  return CountGpus() >= place.ranks ? 100'000 : 100;
}

TEST_P(GroupGpuTest, OneShotReplaysStayExactWithLateRanks) {
  EXPECT_TRUE(OnForkedRanks(ranks(), [](const RankPlace& place) {
    return ReplaysStayExact(place, SumMethod::kOneShot, Replays(place));
  }));
}
TEST_P(GroupGpuTest, TwoShotReplaysStayExactWithLateRanks) {
  EXPECT_TRUE(OnForkedRanks(ranks(), [](const RankPlace& place) {
    return ReplaysStayExact(place, SumMethod::kTwoShot, Replays(place));
  }));
}

// Rows of logits go to their owners and results to all, as a step does it, several times.
bool RowsAndSamplesArrive(const RankPlace& place, SumMethod method) {
  const cuda::Device device = DeviceOf(place);
  constexpr int64_t kColumns = 1000;
  const auto group = Join(place, device, method, 64);
  if (group == nullptr) return false;
  const int64_t most = MostRows(kMaxRows, place.ranks);
  const Buffer memory =
      group->AllocateShared(static_cast<size_t>(most * kColumns * place.ranks) * sizeof(float));
  if (memory.empty()) return false;
  const auto logit = [](int64_t round, int64_t row, int64_t column) {
    return static_cast<float>((round * 131 + row * 8191 + column) % 65536);
  };
  int64_t round = 0;
  for (const int32_t rows : {1, 2, 5, 256, 300, 3}) {
    ++round;
    Array local(DType::kF32, {rows, kColumns});
    for (int64_t i = 0; i < local.size(); ++i) {
      local.Set(i, logit(round, i / kColumns, place.rank * kColumns + i % kColumns));
    }
    DeviceTensor x(DType::kF32, rows, kColumns, local);
    const TensorView out(memory.data(), DType::kF32,
                         {MostRows(rows, place.ranks), kColumns * place.ranks});
    group->ColumnsToRows(x.view(), out);
    const RowRange mine = RowsOf(place.rank, place.ranks, rows);
    std::vector<float> whole(static_cast<size_t>(mine.count * kColumns * place.ranks));
    CUDA_CHECK(cudaStreamSynchronize(device.stream));
    CUDA_CHECK(cudaMemcpy(whole.data(), memory.data(), whole.size() * sizeof(float),
                          cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < whole.size(); ++i) {
      const auto width = static_cast<size_t>(kColumns * place.ranks);
      const float expected = logit(round, mine.begin + static_cast<int64_t>(i / width),
                                   static_cast<int64_t>(i % width));
      if (whole[i] == expected) continue;
      std::fprintf(stderr, "rank %d: element %zu of %d rows is %g, not %g\n", place.rank, i, rows,
                   whole[i], expected);
      return false;
    }
    std::vector<SampleResult> results(static_cast<size_t>(rows), SampleResult{.token = -1});
    for (int64_t r = mine.begin; r < mine.begin + mine.count; ++r) {
      results[static_cast<size_t>(r)] = {.token = static_cast<int32_t>(round * 1000 + r),
                                         .logprob = -static_cast<float>(r),
                                         .nonfinite = static_cast<int32_t>(r % 2)};
    }
    DeviceArray<SampleResult> on_device(results);
    DeviceArray<int32_t> drawn(rows);
    std::vector<SampleJob> jobs(static_cast<size_t>(rows));
    for (int32_t r = 0; r < rows; ++r) {
      jobs[static_cast<size_t>(r)].drawn = r == 2 ? nullptr : drawn.data() + r;
    }
    DeviceArray<SampleJob> device_jobs(jobs);
    group->ShareSamples(
        {.jobs = device_jobs.data(), .results = on_device.data(), .num_rows = rows});
    CUDA_CHECK(cudaStreamSynchronize(device.stream));
    const std::vector<SampleResult> got = on_device.Get();
    const std::vector<int32_t> tokens = drawn.Get();
    for (int32_t r = 0; r < rows; ++r) {
      const auto expected = static_cast<int32_t>(round * 1000 + r);
      const SampleResult& result = got[static_cast<size_t>(r)];
      if (result.token == expected && result.logprob == -static_cast<float>(r) &&
          result.nonfinite == r % 2 && tokens[static_cast<size_t>(r)] == (r == 2 ? -1 : expected)) {
        continue;
      }
      std::fprintf(stderr, "rank %d: row %d of %d has token %d\n", place.rank, r, rows,
                   result.token);
      return false;
    }
  }
  return true;
}

TEST_P(GroupGpuTest, RowsAndSamplesArrive) {
  EXPECT_TRUE(OnForkedRanks(ranks(), [](const RankPlace& place) {
    return RowsAndSamplesArrive(place, SumMethod::kOneShot);
  }));
}

// Ranks of several hosts exchange through NCCL alone.
TEST_P(GroupGpuTest, RowsAndSamplesArriveThroughNccl) {
  if (!HasGpuForEach()) GTEST_SKIP() << "NCCL wants a GPU for each rank";
  EXPECT_TRUE(OnForkedRanks(ranks(), [](RankPlace place) {
    place.one_host = false;
    return RowsAndSamplesArrive(place, SumMethod::kMeasured) &&
           SumsAreExact(place, SumMethod::kMeasured);
  }));
}

// The measured choice is one that every rank has, and a second group reads it from the file.
TEST_P(GroupGpuTest, TheChoiceIsMeasuredOnceAndTheSameOnEveryRank) {
  if (!HasGpuForEach()) GTEST_SKIP() << "NCCL wants a GPU for each rank";
  const std::string file = "build/sum_choice_gpu_test";
  std::remove(file.c_str());
  EXPECT_TRUE(OnForkedRanks(ranks(), [&](const RankPlace& place) {
    const cuda::Device device = DeviceOf(place);
    std::string first;
    for (int i = 0; i < 2; ++i) {
      std::string why;
      const auto group = Communicator::Create(
          {.place = place, .max_rows = 8, .hidden = 4096, .cache_file = file}, device, &why);
      if (group == nullptr) return false;
      for (const std::string& other : place.exchange->Share(group->Describe())) {
        if (other != group->Describe()) return false;
      }
      if (place.rank == 0) std::printf("%s\n", group->Describe().c_str());
      if (i == 1 && group->Describe() != first) return false;
      first = group->Describe();
    }
    return true;
  }));
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupGpuTest, ::testing::Values(2, 4, 8),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace quire::gpu

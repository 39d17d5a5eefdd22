// Score and Pool on the device against the CPU backend, whose own test compares them with double
// arithmetic; and the logits that Sample keeps.
// Covers kernels/cuda/rows/pool.cu
#include <algorithm>

#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

Backend& Cpu() {
  static const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 0)[0]);
  return *backend;
}

// Rows with ties, holes, both zeros, and now and then no distribution.
Array MakeLogits(int64_t rows, int64_t vocab, Random& random) {
  Array logits(DType::kF32, {rows, vocab});
  for (int64_t r = 0; r < rows; ++r) {
    float* row = logits.floats() + r * vocab;
    const int64_t kind = random.Below(5);
    for (int64_t i = 0; i < vocab; ++i) {
      const auto normal = static_cast<float>(random.Normal());
      row[i] = kind == 0 ? normal : kind == 1 ? std::round(normal) : 9 * normal;
      if (kind == 2 && i % 3 != 0) row[i] = -INFINITY;
      if (kind == 3) row[i] = 0.5f;
      if (row[i] == 0 && i % 2 == 0) row[i] = -0.0f;
    }
    if (random.Below(12) == 0) row[random.Below(vocab)] = random.Below(2) == 0 ? NAN : INFINITY;
    if (random.Below(12) == 0) std::fill_n(row, vocab, -INFINITY);
  }
  return logits;
}

// Jobs over rows; `tokens`, `ids` and `words` lie where the backend at hand reads and writes.
std::vector<ScoreJob> MakeJobs(int32_t rows, const int32_t* tokens, const int32_t* ids,
                               uint32_t* words) {
  std::vector<ScoreJob> jobs;
  constexpr int32_t kMostWords = ScoreWords(kMaxTopTokens, kMaxScoredIds);
  for (int32_t r = 0; r < rows; ++r) {
    jobs.push_back({.token = tokens + r,
                    .ids = ids,
                    .out = words + r * kMostWords,
                    .row = r,
                    .num_top = r % (kMaxTopTokens + 1),
                    .num_ids = r % 3 == 0 ? kMaxScoredIds : r % 3});
  }
  return jobs;
}

TEST(ScoreGpuTest, AgreesWithTheCpuBitForBit) {
  Random random(17);
  for (const int64_t vocab : {5, 1000, 32003, 128256}) {
    const int32_t rows = vocab > 10000 ? 43 : 67;
    constexpr int32_t kMostWords = ScoreWords(kMaxTopTokens, kMaxScoredIds);
    Array logits = MakeLogits(rows, vocab, random);
    std::vector<int32_t> tokens, ids;
    for (int32_t r = 0; r < rows; ++r) tokens.push_back(static_cast<int32_t>(random.Below(vocab)));
    for (int32_t i = 0; i < kMaxScoredIds; ++i) {
      ids.push_back(static_cast<int32_t>(random.Below(vocab)));
    }
    std::vector<uint32_t> expected(static_cast<size_t>(rows * kMostWords), 0xffffffff);
    const std::vector<ScoreJob> cpu_jobs =
        MakeJobs(rows, tokens.data(), ids.data(), expected.data());
    Cpu().Score({.logits = logits.view(), .jobs = cpu_jobs.data(), .num_jobs = rows});

    const DeviceTensor device_logits(DType::kF32, rows, vocab, logits, /*gap=*/4);
    const DeviceArray<int32_t> device_tokens(tokens), device_ids(ids);
    const DeviceArray<uint32_t> words(rows * int64_t{kMostWords});
    const DeviceArray<ScoreJob> jobs(
        MakeJobs(rows, device_tokens.data(), device_ids.data(), words.data()));
    const ScoreParams params{.logits = device_logits.view(), .jobs = jobs.data(), .num_jobs = rows};
    ExpectSameBits([&](const cuda::Device& device) { cuda::Score(params, device); },
                   [&] { return words.Get(); });
    EXPECT_EQ(words.Get(), expected) << "vocab " << vocab;
  }
}

TEST(PoolGpuTest, AddsRowsInOrder) {
  Random random(23);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    constexpr int64_t kRows = 70, kWidth = 1032;
    Array x(dtype, {kRows, kWidth});
    for (int64_t i = 0; i < kRows * kWidth; ++i) x.Set(i, static_cast<float>(random.Normal()));
    const DeviceTensor device_x(dtype, kRows, kWidth, x, /*gap=*/8);
    const DeviceArray<float> sums(std::vector<float>(2 * kWidth, 0.5f));
    const DeviceArray<PoolJob> jobs(
        std::vector<PoolJob>{{.out = sums.data(), .begin = 3, .count = 60, .adds = 0},
                             {.out = sums.data() + kWidth, .begin = 69, .count = 1, .adds = 1}});
    cuda::Pool({.x = device_x.view(), .jobs = jobs.data(), .num_jobs = 2}, TestDevice());
    const std::vector<float> got = sums.Get();
    for (int64_t h = 0; h < kWidth; ++h) {
      float sum = 0;
      for (int64_t r = 3; r < 63; ++r) sum += static_cast<float>(x[r * kWidth + h]);
      ASSERT_EQ(got[static_cast<size_t>(h)], sum) << h;
      ASSERT_EQ(got[static_cast<size_t>(kWidth + h)], 0.5f + static_cast<float>(x[69 * kWidth + h]))
          << h;
    }
  }
}

// Raw rows stay; processed rows have the values that the CPU leaves, of every path of the sampler.
TEST(ScoreGpuTest, SampleKeepsTheLogitsThatTheCpuKeeps) {
  Random random(29);
  constexpr int32_t kRows = 48;
  for (const int64_t vocab : {1000, 32003, 128256}) {
    Array logits(DType::kF32, {kRows, vocab});
    for (int64_t i = 0; i < kRows * vocab; ++i) {
      logits.floats()[i] = static_cast<float>(3 * random.Normal());
    }
    std::vector<SampleJob> jobs(kRows);
    const std::vector<LogitBias> bias = {{1, 2.5f}, {3, -100.0f}};
    const DeviceArray<LogitBias> device_bias(bias);
    for (int32_t r = 0; r < kRows; ++r) {
      SampleRow& row = jobs[r].params;
      row.temperature = r % 5 == 0 ? 0.0f : 0.25f * static_cast<float>(1 + r % 7);
      row.top_k = r % 3 == 0 ? 40 : 0;
      row.top_p = r % 4 == 0 ? 0.9f : 1.0f;
      row.min_p = r % 6 == 0 ? 0.05f : 0.0f;
      row.typical_p = r % 7 == 0 ? 0.8f : 1.0f;
      row.seed = random.Next();
      jobs[r].kept = r % 2 == 0 ? KeptLogits::kProcessed : KeptLogits::kRaw;
      jobs[r].num_bias = r % 8 < 4 ? 2 : 0;
    }
    std::vector<SampleJob> device_jobs = jobs;
    for (SampleJob& job : jobs) job.bias = bias.data();
    for (SampleJob& job : device_jobs) job.bias = device_bias.data();
    const DeviceTensor device_logits(DType::kF32, kRows, vocab, logits);
    const DeviceArray<SampleJob> on_device(device_jobs);
    const DeviceArray<SampleResult> results(kRows);
    cuda::Sample(
        {.logits = device_logits.view(), .jobs = on_device.data(), .results = results.data()},
        TestDevice());
    std::vector<SampleResult> expected(kRows);
    Cpu().Sample({.logits = logits.view(), .jobs = jobs.data(), .results = expected.data()});
    Array got = device_logits.Get();
    const std::vector<SampleResult> drawn = results.Get();
    for (int32_t r = 0; r < kRows; ++r) {
      ASSERT_EQ(drawn[r].token, expected[r].token) << "row " << r << " of " << vocab;
      ASSERT_TRUE(std::equal(got.floats() + r * vocab, got.floats() + (r + 1) * vocab,
                             logits.floats() + r * vocab))
          << "row " << r << " of " << vocab;
    }
  }
}

}  // namespace
}  // namespace quire::gpu

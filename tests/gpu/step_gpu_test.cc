// BeginStep and EndStep on the device against the CPU backend: the same messages give the same
// tables and arrays, over several turns of the ring.
//
// Covers kernels/cuda/step.cu
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

constexpr int32_t kRows = 1600, kBlockSize = 32, kSlots = 3;
constexpr int32_t kMostDraws = 9;  // of a work
constexpr int64_t kTokenStride = 9000, kTableStride = 300, kMessageBytes = 1 << 20;

// The contents of a step.
struct Plan {
  std::vector<RowWork> works;
  // The place in the tables, in 4-byte words from the beginning of the token table, and the words.
  struct Write {
    int64_t at;
    std::vector<int32_t> words;
  };
  std::vector<Write> writes;

  int32_t num_tokens() const {
    int32_t sum = 0;
    for (const RowWork& work : works) sum += work.count;
    return sum;
  }
  int32_t num_samples() const {
    int32_t sum = 0;
    for (const RowWork& work : works) sum += work.sample;
    return sum;
  }
};

constexpr int64_t kTableWords = kRows * (kTokenStride + kTableStride);

// Writes a plan as a message whose patches go to `tables`.
void Write(const Plan& plan, int32_t* tables, char* slot) {
  uint32_t used = sizeof(StepMessage);
  const auto take = [&](size_t bytes) {
    used = (used + 15) / 16 * 16;
    const uint32_t at = used;
    used += static_cast<uint32_t>(bytes);
    CHECK_LE(int64_t{used}, kMessageBytes);
    return at;
  };
  StepMessage head{.num_patches = static_cast<int32_t>(plan.writes.size()),
                   .num_rows = static_cast<int32_t>(plan.works.size()),
                   .num_samples = plan.num_samples()};
  head.patches_at = take(plan.writes.size() * sizeof(Patch));
  head.work_at = take(plan.works.size() * sizeof(RowWork));
  head.jobs_at = take(static_cast<size_t>(head.num_samples) * sizeof(SampleJob));
  std::memcpy(slot + head.work_at, plan.works.data(), plan.works.size() * sizeof(RowWork));
  static SampleJob job;  // static, so that the bytes between its members are 0 too
  for (int32_t i = 0; i < head.num_samples; ++i) {
    job.params.seed = static_cast<uint64_t>(i) * 12345;
    job.num_known = i + 7;
    std::memcpy(slot + head.jobs_at + static_cast<size_t>(i) * sizeof(job), &job, sizeof(job));
  }
  for (size_t i = 0; i < plan.writes.size(); ++i) {
    const auto& [at, words] = plan.writes[i];
    const Patch patch{tables + at, take(words.size() * 4), static_cast<uint32_t>(words.size() * 4)};
    std::memcpy(slot + patch.from, words.data(), patch.bytes);
    std::memcpy(slot + head.patches_at + i * sizeof(Patch), &patch, sizeof(patch));
  }
  head.bytes = used;
  std::memcpy(slot, &head, sizeof(head));
}

// The arrays of a step and its results in memory of `Alloc`, filled with 0xFF.
struct Arrays {
  int32_t *token_ids, *positions, *query_begin, *context_len, *table_row, *logit_rows;
  int64_t* slots;
  SampleJob* jobs;
};

struct Everything {
  std::vector<int32_t> tables, token_ids, positions, query_begin, context_len, table_row,
      logit_rows;
  std::vector<int64_t> slots;
  std::vector<char> jobs;
};

BeginStepParams Params(const Plan& plan, const StepRing& ring, const int32_t* tables,
                       const Arrays& arrays) {
  return {.ring = ring,
          .num_tokens = plan.num_tokens(),
          .num_seqs = static_cast<int32_t>(plan.works.size()),
          .num_samples = plan.num_samples(),
          .token_table = tables,
          .token_stride = kTokenStride,
          .block_table = tables + kRows * kTokenStride,
          .table_stride = kTableStride,
          .block_size = kBlockSize,
          .token_ids = arrays.token_ids,
          .positions = arrays.positions,
          .slots = arrays.slots,
          .query_begin = arrays.query_begin,
          .context_len = arrays.context_len,
          .table_row = arrays.table_row,
          .logit_rows = arrays.logit_rows,
          .jobs = arrays.jobs};
}

// Host memory that the device reads and writes.
char* Pinned(size_t bytes) {
  void* data;
  CUDA_CHECK(cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
  std::memset(data, 0, bytes);
  return static_cast<char*>(data);
}

constexpr int64_t kResults = kRows * kMostDraws;  // of a step, at most

StepRing RingOf(char* memory, uint64_t* step) {
  return {.messages = memory,
          .message_stride = kMessageBytes,
          .results = reinterpret_cast<SampleResult*>(memory + kSlots * kMessageBytes),
          .result_stride = kResults,
          .slots = kSlots,
          .step = step};
}
constexpr size_t kRingBytes = kSlots * (kMessageBytes + kResults * sizeof(SampleResult));

class StepGpuTest : public testing::Test {
 protected:
  // Runs the plan on both backends, and compares tables, arrays and results.
  void Step(const Plan& plan, const cuda::Device& device) {
    const auto t = static_cast<size_t>(plan.num_tokens()), s = plan.works.size();
    const auto r = static_cast<size_t>(plan.num_samples());
    Everything expected{.tables = std::move(host_tables_),
                        .token_ids = std::vector<int32_t>(t, -1),
                        .positions = std::vector<int32_t>(t, -1),
                        .query_begin = std::vector<int32_t>(s + 1, -1),
                        .context_len = std::vector<int32_t>(s, -1),
                        .table_row = std::vector<int32_t>(s, -1),
                        .logit_rows = std::vector<int32_t>(r, -1),
                        .slots = std::vector<int64_t>(t, -1),
                        .jobs = std::vector<char>(r * sizeof(SampleJob), '\xFF')};
    char* slot = host_ring_.data() + host_step_ % kSlots * kMessageBytes;
    Write(plan, expected.tables.data(), slot);
    const StepRing host_ring = RingOf(host_ring_.data(), &host_step_);
    cpu_->BeginStep(
        Params(plan, host_ring, expected.tables.data(),
               {expected.token_ids.data(), expected.positions.data(), expected.query_begin.data(),
                expected.context_len.data(), expected.table_row.data(), expected.logit_rows.data(),
                expected.slots.data(), reinterpret_cast<SampleJob*>(expected.jobs.data())}));

    DeviceArray<int32_t> ids(t), positions(t), begin(s + 1), len(s), row(s), logits(r);
    DeviceArray<int64_t> slots(t);
    DeviceArray<char> jobs(r * sizeof(SampleJob));
    Write(plan, tables_.data(), ring_memory_ + host_step_ % kSlots * kMessageBytes);
    const StepRing ring = RingOf(ring_memory_, step_.data());
    cuda::BeginStep(
        Params(plan, ring, tables_.data(),
               {ids.data(), positions.data(), begin.data(), len.data(), row.data(), logits.data(),
                slots.data(), reinterpret_cast<SampleJob*>(jobs.data())}),
        device);
    const Everything got{tables_.Get(), ids.Get(),    positions.Get(), begin.Get(), len.Get(),
                         row.Get(),     logits.Get(), slots.Get(),     jobs.Get()};
    host_tables_ = expected.tables;
    SCOPED_TRACE(testing::Message() << s << " works, " << t << " tokens");
    ASSERT_TRUE(got.tables == expected.tables);
    ASSERT_TRUE(got.token_ids == expected.token_ids);
    ASSERT_TRUE(got.positions == expected.positions);
    ASSERT_TRUE(got.query_begin == expected.query_begin);
    ASSERT_TRUE(got.context_len == expected.context_len);
    ASSERT_TRUE(got.table_row == expected.table_row);
    ASSERT_TRUE(got.logit_rows == expected.logit_rows);
    ASSERT_TRUE(got.slots == expected.slots);
    ASSERT_TRUE(got.jobs == expected.jobs);
    End(plan, ring, device);
  }

  void End(const Plan& plan, const StepRing& ring, const cuda::Device& device) {
    std::vector<SampleResult> results(static_cast<size_t>(plan.num_samples()));
    for (size_t i = 0; i < results.size(); ++i) {
      results[i] = {static_cast<int32_t>(i * 3 + host_step_), static_cast<float>(i), 0};
    }
    DeviceArray<SampleResult> on_device(results);
    cuda::EndStep({.ring = ring, .results = on_device.data(), .num_samples = plan.num_samples()},
                  device);
    CUDA_CHECK(cudaDeviceSynchronize());
    const SampleResult* there = ring.results + host_step_ % kSlots * kResults;
    EXPECT_EQ(std::memcmp(there, results.data(), results.size() * sizeof(SampleResult)), 0);
    EXPECT_EQ(step_.Get()[0], ++host_step_);
  }

  Random random_{7};
  const std::unique_ptr<Backend> cpu_ = MakeBackend({cpu::BestIsa(), 1});
  std::vector<int32_t> host_tables_ = [&] {
    std::vector<int32_t> words(kTableWords);
    for (int32_t& word : words) word = static_cast<int32_t>(random_.Below(1 << 20));
    return words;
  }();
  DeviceArray<int32_t> tables_{host_tables_};
  std::vector<char> host_ring_ = std::vector<char>(kRingBytes + 16);
  char* const ring_memory_ = Pinned(kRingBytes);
  uint64_t host_step_ = 0;
  DeviceArray<uint64_t> step_{std::vector<uint64_t>{0}};
};

std::vector<int32_t> Words(Random& random, int64_t count) {
  std::vector<int32_t> words(static_cast<size_t>(count));
  for (int32_t& word : words) word = static_cast<int32_t>(random.Below(1 << 20));
  return words;
}

// Works of random rows. Each row has its own patches, so none overlap.
Plan RandomPlan(Random& random, int32_t num_works, int32_t max_count, int64_t patch_words) {
  Plan plan;
  for (int32_t s = 0; s < num_works; ++s) {
    const auto count = static_cast<int32_t>(1 + random.Below(max_count));
    const auto start = static_cast<int32_t>(random.Below(kTokenStride - count));
    const auto draws = static_cast<int32_t>(1 + random.Below(std::min(count, kMostDraws)));
    plan.works.push_back({.row = (s * 7 + 3) % kRows,
                          .start = start,
                          .count = count,
                          .sample = random.Below(4) > 0 ? draws : 0});
    if (random.Below(3) == 0) continue;
    const int64_t words = 1 + random.Below(patch_words), row = plan.works.back().row;
    plan.writes.push_back(
        {row * kTokenStride + random.Below(kTokenStride - words), Words(random, words)});
    plan.writes.push_back(
        {kRows * kTokenStride + row * kTableStride + random.Below(kTableStride), Words(random, 1)});
  }
  return plan;
}

TEST_F(StepGpuTest, MatchesTheCpu) {
  for (bool dependent_launch : {true, false}) {
    const cuda::Device device = TestDevice(dependent_launch);
    for (int turn = 0; turn < 2; ++turn) {
      Step(RandomPlan(random_, 1, 1, 1), device);
      Step(RandomPlan(random_, 256, 1, 1), device);      // a decoding step
      Step(RandomPlan(random_, 5, 2000, 8192), device);  // prompts, patches of up to 32 KB
      Step(RandomPlan(random_, 1600, 1, 3), device);     // more works than threads
      Step(RandomPlan(random_, 1500, 9, 40), device);
      Step(RandomPlan(random_, 40, 300, 6000), device);  // more than shared memory holds
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(StepGpuTest, AcceptsWorksWithoutTokensAndStepsWithoutSamples) {
  Plan plan;
  for (int32_t s = 0; s < 20; ++s) {
    plan.works.push_back({.row = s, .start = s * 5, .count = s % 3, .sample = 0});
  }
  Step(plan, TestDevice());
}

}  // namespace
}  // namespace quire::gpu

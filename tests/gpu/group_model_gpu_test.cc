// Every family and shape on ranks of GPUs, against transformers: logits and clear greedy tokens on
// each rank, by two ranks and by four, which hold each key/value head twice; and every form of
// stored matrices of 4 and 8 bits against float64, by two ranks. Four ranks share two GPUs where
// there are no more. A checkpoint that the kernels do not take, or that does not divide, is
// skipped, and the report says why. Covers engine/model/decoder.cc
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/forked_ranks.h"
#include "tests/gpu/wide_checkpoints.h"

namespace quire::testing {
namespace {

std::unique_ptr<CudaBackend> JoinedBackend(const ModelConfig& config, const RankPlace& place) {
  const TpInfo tp{.rank = place.rank, .size = place.ranks};
  std::string why;
  std::unique_ptr<CudaBackend> backend = CudaBackend::Create(
      {.ordinal = place.rank % gpu::CountGpus(),
       .place = place,
       .max_tokens = kMaxTokens,
       .max_rows = kMaxRows,
       .max_context = kMaxTokens,
       .num_heads = static_cast<int32_t>(Shard(config.num_heads, tp).count),
       .num_kv_heads = static_cast<int32_t>(KvShard(config.num_kv_heads, tp).count),
       .head_dim = config.head_dim,
       .capped = config.facts.attention_soft_cap > 0,
       .hidden = config.hidden_size},
      &why);
  if (backend == nullptr) std::fprintf(stderr, "rank %d: %s\n", place.rank, why.c_str());
  return backend;
}

bool MatchesTransformers(const TestCheckpoint& checkpoint, const RankPlace& place) {
  const std::string dir = WideDir(checkpoint);
  const absl::StatusOr<ModelConfig> config = ModelConfig::Load(dir);
  const Expected expected = ReadExpected(dir);
  const std::unique_ptr<CudaBackend> backend = JoinedBackend(*config, place);
  if (backend == nullptr) return false;
  ModelRunner runner(dir, {place.rank, place.ranks}, WideOptions(checkpoint), *backend);
  const double worst = WorstError(expected, runner);
  if (place.rank == 0) {
    std::printf("%s: relative error %.4f, of transformers in bf16 %.4f\n", checkpoint.name, worst,
                expected.bf16_relative_error);
  }
  const ClearTokens tokens = CompareClearTokens(expected, runner);
  for (const std::string& wrong : tokens.wrong) {
    std::fprintf(stderr, "rank %d: %s is another\n", place.rank, wrong.c_str());
  }
  return worst < kErrorsAllowed * expected.bf16_relative_error && tokens.wrong.empty();
}

class GroupParity : public ::testing::TestWithParam<TestCheckpoint> {};

TEST_P(GroupParity, LogitsAndClearTokensMatchTransformers) {
  const absl::StatusOr<ModelConfig> config = ModelConfig::Load(WideDir(GetParam()));
  ASSERT_TRUE(config.ok()) << config.status();
  if (const absl::Status can = CheckWide(*config, 2, WideOptions(GetParam())); !can.ok()) {
    RecordProperty("refused", std::string(can.message()));
    GTEST_SKIP() << can;
  }
  EXPECT_TRUE(gpu::OnForkedRanks(
      2, [&](const RankPlace& place) { return MatchesTransformers(GetParam(), place); }));
}

// One checkpoint: ranks that take turns on a GPU are slow.
TEST(GroupParityOfFour, LogitsAndClearTokensMatchTransformers) {
  EXPECT_TRUE(gpu::OnForkedRanks(4, [&](const RankPlace& place) {
    return MatchesTransformers({"llama-8-heads", "", ""}, place);
  }));
}

bool MatchesFloat64(const NarrowCheckpoint& checkpoint, const RankPlace& place) {
  const ModelConfig config = *ModelConfig::Load(ModelDir(checkpoint.name));
  const Expected expected = ReadExpected(checkpoint.name);
  const std::unique_ptr<CudaBackend> backend = JoinedBackend(config, place);
  if (backend == nullptr) return false;
  ModelRunner runner(checkpoint.name, {place.rank, place.ranks}, NarrowOptions(checkpoint, config),
                     *backend);
  const double worst = WorstNarrowError(expected, place.ranks, runner);
  if (place.rank == 0) {
    std::printf("%s: relative error %.4f, of numpy in bf16 %.4f\n", checkpoint.name, worst,
                expected.bf16_relative_error);
  }
  return worst < kNarrowErrorsAllowed * expected.bf16_relative_error;
}

class GroupNarrowParity : public ::testing::TestWithParam<NarrowCheckpoint> {};

TEST_P(GroupNarrowParity, LogitsAreNearFloat64) {
  const absl::StatusOr<ModelConfig> config = ModelConfig::Load(ModelDir(GetParam().name));
  ASSERT_TRUE(config.ok()) << config.status();
  if (const absl::Status can = CheckWide(*config, 2, NarrowOptions(GetParam(), *config));
      !can.ok() || GetParam().any_order) {
    RecordProperty("refused", can.ok() ? "columns in any order" : std::string(can.message()));
    GTEST_SKIP() << can;
  }
  EXPECT_TRUE(gpu::OnForkedRanks(
      2, [&](const RankPlace& place) { return MatchesFloat64(GetParam(), place); }));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GroupNarrowParity, ::testing::ValuesIn(NarrowCheckpoints()),
                         NameOfNarrow);

INSTANTIATE_TEST_SUITE_P(Checkpoints, GroupParity, ::testing::ValuesIn(WideCheckpoints()),
                         NameOfCheckpoint);

}  // namespace
}  // namespace quire::testing

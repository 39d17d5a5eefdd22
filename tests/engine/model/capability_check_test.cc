// CheckDeviceCan: each limit is named with its value and what to do, all of them at once, and the
// shapes of published models pass.
// Covers kernels/device_limits.h
#include "engine/model/capability_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The shape of Llama-3.1-8B.
ModelConfig Model() {
  return {.hidden_size = 4096,
          .intermediate_size = 14336,
          .num_layers = 32,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_dim = 128,
          .vocab_size = 128256,
          .max_position = 131072};
}

class CapabilityCheckTest : public ::testing::Test {
 protected:
  KernelDemand Demand() const {
    return {.model = model_,
            .ranks = ranks_,
            .weight_dtype = weights_,
            .kv_dtype = kv_,
            .max_num_seqs = max_num_seqs_,
            .max_num_batched_tokens = max_num_batched_tokens_,
            .max_model_len = max_model_len_};
  }
  std::string OnCuda() const {
    const absl::Status status = CheckDeviceCan(Demand(), kCudaLimits);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status));
    return std::string(status.message());
  }
  // The CPU takes whatever the test has set.
  ~CapabilityCheckTest() override { EXPECT_TRUE(CheckDeviceCan(Demand(), kCpuLimits).ok()); }

  ModelConfig model_ = Model();
  int32_t ranks_ = 1;
  DType weights_ = DType::kBF16;
  DType kv_ = DType::kBF16;
  int32_t max_num_seqs_ = 256;
  int32_t max_num_batched_tokens_ = 2048;
  int32_t max_model_len_ = 0;
};

TEST_F(CapabilityCheckTest, PublishedShapesPass) {
  EXPECT_EQ(OnCuda(), "");
  // Llama-3.2-1B, Qwen2.5-0.5B, Llama-3.1-70B.
  model_.hidden_size = 2048, model_.intermediate_size = 8192, model_.head_dim = 64;
  EXPECT_EQ(OnCuda(), "");
  model_.hidden_size = 896, model_.intermediate_size = 4864, model_.num_heads = 14;
  model_.num_kv_heads = 2, model_.vocab_size = 151936;
  EXPECT_EQ(OnCuda(), "");
  model_.hidden_size = 8192, model_.intermediate_size = 28672, model_.head_dim = 128;
  model_.num_heads = 64, model_.num_kv_heads = 8;
  EXPECT_EQ(OnCuda(), "");
}

TEST_F(CapabilityCheckTest, HeadDim) {
  for (const int32_t dim : {16, 48, 80, 96, 112, 160, 192, 256}) {
    model_.head_dim = dim;
    EXPECT_EQ(OnCuda(), "");
  }
  for (const int32_t dim : {8, 72, 130, 264, 272}) {
    model_.head_dim = dim;
    EXPECT_EQ(OnCuda(), absl::StrCat("head_dim ", dim,
                                     ": the CUDA attention kernels take multiples of 16 up to 256; "
                                     "serve it with --device cpu"));
  }
}

TEST_F(CapabilityCheckTest, TakesAnyNumberOfQueryHeadsOfAKvHead) {
  model_.num_heads = 136, model_.num_kv_heads = 8;
  EXPECT_EQ(OnCuda(), "");
  model_.num_heads = 1000, model_.num_kv_heads = 1;
  max_num_batched_tokens_ = 2147;  // times 1000^2 is below 2^31
  EXPECT_EQ(OnCuda(), "");
  max_num_batched_tokens_ = 2148;
  EXPECT_EQ(OnCuda(),
            "--max-num-batched-tokens 2148: with 1000 query heads for each key/value head the CUDA "
            "attention kernels take at most 2147; lower it");
}

TEST_F(CapabilityCheckTest, SoftCap) {
  model_.facts.attention_soft_cap = 1000;
  EXPECT_EQ(OnCuda(), "");
  model_.facts.attention_soft_cap = 2000;
  EXPECT_EQ(OnCuda(),
            "attn_logit_softcapping 2000: the CUDA attention kernels take at most 1000; serve it "
            "with --device cpu");
}

TEST_F(CapabilityCheckTest, NormsOfAllHeadsAtOnce) {
  model_.num_heads = 128, model_.head_dim = 256;
  EXPECT_EQ(OnCuda(), "");
  model_.facts.qk_norm = QkNorm::kWidth;
  EXPECT_EQ(
      OnCuda(),
      "num_attention_heads * head_dim 32768: the CUDA norm kernels, which normalise all heads "
      "at once, take at most 16384; serve it with --device cpu");
}

TEST_F(CapabilityCheckTest, Widths) {
  model_.hidden_size = 4100;
  EXPECT_EQ(OnCuda(),
            "hidden_size 4100: the CUDA kernels take multiples of 8; serve it with --device cpu");
  model_.hidden_size = 4096, model_.intermediate_size = 14337;  // padded
  EXPECT_EQ(OnCuda(), "");
}

TEST_F(CapabilityCheckTest, WidthsOfEightBitMatrices) {
  model_.quantization.source = Quantization::Source::kWhileLoading;
  EXPECT_EQ(OnCuda(), "");
  model_.hidden_size = 4104;
  EXPECT_EQ(OnCuda(),
            "hidden_size 4104: the CUDA kernels of 8-bit matrices take multiples of 16 up to "
            "32768; serve it with --device cpu");
  model_.hidden_size = 4096, model_.intermediate_size = 14341;  // padded
  EXPECT_EQ(OnCuda(), "");
  model_.intermediate_size = 32769;
  EXPECT_EQ(
      OnCuda(),
      "intermediate_size of a rank 32784 with --tensor-parallel-size 1: the CUDA kernels of "
      "8-bit matrices take multiples of 16 up to 32768; serve it with --device cpu or another "
      "number of ranks");
  model_.intermediate_size = 65536, ranks_ = 2;
  EXPECT_EQ(OnCuda(), "");
  model_.num_heads = 258, ranks_ = 2, model_.head_dim = 256;
  EXPECT_EQ(OnCuda(),
            "num_attention_heads * head_dim of a rank 33024 with --tensor-parallel-size 2: the "
            "CUDA kernels of 8-bit matrices take multiples of 16 up to 32768; serve it with "
            "--device cpu or another number of ranks");
  model_.quantization.source = Quantization::Source::kNone;
  EXPECT_EQ(OnCuda(), "");
}

TEST_F(CapabilityCheckTest, LargestHiddenSize) {
  model_.hidden_size = 16384;
  EXPECT_EQ(OnCuda(), "");
  model_.hidden_size = 16392;
  EXPECT_EQ(OnCuda(),
            "hidden_size 16392: the CUDA norm kernels take at most 16384; serve it with --device "
            "cpu");
}

TEST_F(CapabilityCheckTest, LargestVocabulary) {
  model_.vocab_size = 786432;
  EXPECT_EQ(OnCuda(), "");
  model_.vocab_size = 786433;
  EXPECT_EQ(OnCuda(),
            "vocab_size 786433: the CUDA sampling kernel takes at most 786432; serve it with "
            "--device cpu");
  model_.vocab_size = 50257;  // of any width else
  EXPECT_EQ(OnCuda(), "");
}

TEST_F(CapabilityCheckTest, Rows) {
  max_num_seqs_ = 4096;  // and the padding row
  EXPECT_EQ(OnCuda(), "");
  max_num_seqs_ = 4097;
  EXPECT_EQ(OnCuda(),
            "--max-num-seqs 4097: the CUDA attention kernels take at most 4096; lower it");
}

TEST_F(CapabilityCheckTest, Context) {
  max_model_len_ = 524288;
  EXPECT_EQ(OnCuda(), "");
  max_model_len_ = 524289;
  EXPECT_EQ(OnCuda(),
            "--max-model-len 524289: the CUDA sampling kernel takes at most 524288; lower it");
}

TEST_F(CapabilityCheckTest, TokensOfAStep) {
  model_.intermediate_size = 16384;
  max_num_batched_tokens_ = (1 << 20) - 1;
  EXPECT_EQ(OnCuda(), "");
  max_num_batched_tokens_ = 1 << 20;  // 2^31 vectors of eight
  EXPECT_EQ(OnCuda(),
            "--max-num-batched-tokens 1048576: with intermediate_size 16384 the CUDA elementwise "
            "kernels take at most 1048575; lower it");
  model_.intermediate_size = 4096, model_.hidden_size = 16384;
  EXPECT_EQ(OnCuda(),
            "--max-num-batched-tokens 1048576: with hidden_size 16384 the CUDA elementwise kernels "
            "take at most 1048575; lower it");
}

TEST_F(CapabilityCheckTest, Types) {
  weights_ = kv_ = DType::kF16;
  EXPECT_EQ(OnCuda(), "");
  weights_ = kv_ = DType::kF32;
  EXPECT_EQ(OnCuda(),
            "--dtype float32 runs on the cpu only: the CUDA kernels take bfloat16 and float16");
  weights_ = DType::kF16, kv_ = DType::kBF16;
  EXPECT_EQ(OnCuda(),
            "--kv-cache-dtype bfloat16: the CUDA kernels keep the KV cache in the type of the "
            "weights, float16, or in 8 bits; use auto or fp8");
  kv_ = DType::kE4M3;
  EXPECT_EQ(OnCuda(), "");
  weights_ = DType::kBF16;
  EXPECT_EQ(OnCuda(), "");
}

TEST_F(CapabilityCheckTest, NamesEveryReasonAtOnce) {
  model_.head_dim = 72, model_.hidden_size = 4100;
  max_num_seqs_ = 5000;
  EXPECT_THAT(OnCuda(), AllOf(HasSubstr("head_dim 72"), HasSubstr("\nhidden_size 4100"),
                              HasSubstr("\n--max-num-seqs 5000"), Not(HasSubstr("vocab_size"))));
}

TEST(DeviceLimitsTest, AreThoseOfTheResolvedDevice) {
  EXPECT_EQ(LimitsOf("cuda").max_rows, 4097);
  EXPECT_EQ(LimitsOf("cpu").max_rows, kNoLimit);
}

}  // namespace
}  // namespace quire

// Checkpoints with 8-bit matrices, as their writers store them, against the same arithmetic in
// float64 from the published bytes; and what is wrong with their scales, by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "engine/base/json.h"
#include "engine/base/log.h"
#include "tests/engine/model/edited_checkpoint.h"
#include "tests/engine/model/model_runner.h"
#include "tests/engine/model/narrow_checkpoints.h"
#include "tests/engine/model/temp_dir.h"
#include "tests/kernels/cases.h"

namespace quire::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Prompts are such that float32 rounds no activation to another 8-bit element than float64
// (make_quantized_checkpoints.py), so that only its own errors remain. On the way to a logit are
// six products in each of at most two layers and the head's, of at most 256 terms. Each is taken to
// add SumError to the relative error of a vector: errors of random terms add like the terms. Errors
// are at most 3e-7 here.
const double kTolerance = (6 * 2 + 1) * SumError(256);

class QuantizedParity : public ::testing::TestWithParam<NarrowCheckpoint> {};

constexpr char kEightBitKv[] = "fp8-kv";

// The logits of a prompt on its number of ranks, run in chunks.
std::vector<float> LogitsOf(const NarrowCheckpoint& checkpoint, const Expected::Prompt& prompt,
                            int32_t chunk) {
  const RunnerOptions options{.kv_dtype = checkpoint.KvDtype(DType::kF32)};
  const int32_t ranks = prompt.ranks;
  std::vector<std::unique_ptr<Backend>> backends = CreateCpuBackends(ranks, ranks);
  std::vector<std::vector<float>> logits(ranks);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ModelRunner runner(checkpoint.name, {rank, ranks}, options, *backends[rank]);
      logits[rank] = runner.RunChunked(prompt.tokens, chunk, prompt.positions);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& other : logits) EXPECT_EQ(other, logits[0]);
  return logits[0];
}

TEST_P(QuantizedParity, LogitsAreThoseOfFloat64) {
  const Expected expected = ReadExpected(GetParam().name);
  const nlohmann::json facts = *ReadJsonFile(ModelDir(GetParam().name) + "/expected.json");
  // Another rounding of activations would be off by as much as none.
  EXPECT_GT(facts.at("wide_relative_error").get<double>(), 100 * kTolerance);
  ASSERT_GE(expected.prompts.size(), 3);
  for (const Expected::Prompt& prompt : expected.prompts) {
    SCOPED_TRACE(std::to_string(prompt.tokens.size()) + " tokens on " +
                 std::to_string(prompt.ranks) + " ranks");
    const std::vector<float> logits = LogitsOf(GetParam(), prompt, 1000);
    const double error = RelativeError(logits, prompt.logits);
    EXPECT_LT(error, kTolerance);
    RecordProperty(
        "error_of_" + std::to_string(prompt.tokens.size()) + "_" + std::to_string(prompt.ranks),
        ::testing::PrintToString(error));
    EXPECT_EQ(LogitsOf(GetParam(), prompt, 7), logits);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, QuantizedParity, ::testing::ValuesIn(kEightBitCheckpoints),
                         NameOfNarrow);

// A copy whose scales a test edits.
class EditedScales : public EditedCheckpoint {
 public:
  using EditedCheckpoint::EditedCheckpoint;

  void Set(const std::string& name, int64_t element, float value) {
    const auto& entry = header.at(name);
    const bool wide = entry.at("dtype") == "F32";
    const size_t size = wide ? 4 : 2;
    const size_t at = entry.at("data_offsets")[0].get<size_t>() + element * size;
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (!wide) bits >>= 16;  // bfloat16
    std::memcpy(&data.at(at), &bits, size);
  }
  bool eight_bit_kv = false;

  absl::Status Load() const {
    const TempDir dir;
    WriteTo(dir);
    const absl::StatusOr<ModelConfig> model = ModelConfig::Load(dir.path());
    if (!model.ok()) return model.status();
    const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 1)[0]);
    const ModelOptions options{.eight_bit_kv = eight_bit_kv,
                               .max_tokens = 4,
                               .max_logit_rows = 1,
                               .max_model_len = 32,
                               .weights_in_place = true};
    return LoadModel(dir.path(), *model, {}, options, *backend).status();
  }
  std::string Message() const {
    const absl::Status status = Load();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
};

const std::string kQuery = "model.layers.0.self_attn.q_proj";

TEST(QuantizedCheckpointTest, CopiesLoad) {
  EXPECT_TRUE(EditedScales("fp8-channel").Load().ok());
  EXPECT_TRUE(EditedScales("fp8-autofp8").Load().ok());
}

// A scale of 0, below it, infinite or not a number.
TEST(QuantizedCheckpointTest, BadScalesAreRefusedByElement) {
  const float bad[] = {0.0f, -1.0f, HUGE_VALF, -HUGE_VALF, NAN};
  for (const float value : bad) {
    EditedScales channel("fp8-channel");
    channel.Set(kQuery + ".weight_scale", 37, value);
    EXPECT_THAT(channel.Message(),
                AllOf(HasSubstr("/model.safetensors: tensor \"" + kQuery + ".weight_scale\": "),
                      HasSubstr("element 37 is "), HasSubstr("above 0")));
    EditedScales one("fp8-autofp8");
    one.Set("model.layers.1.mlp.down_proj.weight_scale", 0, value);
    EXPECT_THAT(one.Message(), HasSubstr("down_proj.weight_scale\": element 0 is "));
  }
  EditedScales large("fp8-channel");
  large.Set(kQuery + ".weight_scale", 37, 1e30f);
  EXPECT_TRUE(large.Load().ok());
}

TEST(QuantizedCheckpointTest, BadScalesOfBlocksAreRefusedByElement) {
  const std::string down = "model.layers.0.mlp.down_proj.weight_scale_inv";
  for (const float value : {0.0f, -1.0f, HUGE_VALF, NAN}) {
    EditedScales block("fp8-block");
    block.Set(down, 3, value);
    EXPECT_THAT(block.Message(), AllOf(HasSubstr("/model.safetensors: tensor \"" + down + "\": "),
                                       HasSubstr("element 3 is "), HasSubstr("above 0")));
  }
  EditedScales turned("fp8-block");
  turned.header[down]["shape"] = {4, 1};
  EXPECT_THAT(turned.Message(), AllOf(HasSubstr(down + "\": has shape [4, 1]"),
                                      HasSubstr("down_proj.weight have shape [2, 2]")));
  EditedScales missing("fp8-block");
  missing.header["rotary_emb.inv_freq"] = missing.header[down];
  missing.header.erase(down);
  EXPECT_THAT(missing.Message(), HasSubstr("tensor \"" + down + "\": is missing"));
  EditedScales integers("fp8-block");
  integers.header[down]["dtype"] = "I16";
  EXPECT_THAT(integers.Message(), HasSubstr(down + "\": "));
  // Without blocks in the description, the names of scales are others.
  EditedScales rows("fp8-block");
  rows.config["quantization_config"].erase("weight_block_size");
  EXPECT_THAT(rows.Message(), AllOf(HasSubstr("weight_scale\": is missing"),
                                    HasSubstr("weight_scale_inv\": is not part")));
}

TEST(QuantizedCheckpointTest, MissingAndMisshapenScalesAreNamed) {
  EditedScales missing("fp8-channel");
  missing.header["model.layers.0.rotary_emb.inv_freq"] = missing.header[kQuery + ".weight_scale"];
  missing.header.erase(kQuery + ".weight_scale");
  EXPECT_THAT(missing.Message(), HasSubstr("tensor \"" + kQuery + ".weight_scale\": is missing"));
  EditedScales vector("fp8-channel");
  vector.header[kQuery + ".weight_scale"]["shape"] = {64};
  EXPECT_TRUE(vector.Load().ok());
  EditedScales half("fp8-channel");
  half.header.erase(kQuery + ".weight_scale");
  half.Add(kQuery + ".weight_scale", "BF16", {32, 1}, 64);
  half.header["rotary_emb.inv_freq"] = EditedScales("fp8-channel").header[kQuery + ".weight_scale"];
  EXPECT_THAT(half.Message(), HasSubstr(kQuery + ".weight_scale\": has shape [32, 1]"));
}

TEST(QuantizedCheckpointTest, ElementsAreOfTheDescribedType) {
  EditedScales floats("int8-channel");
  floats.header[kQuery + ".weight"]["dtype"] = "F8_E4M3";
  EXPECT_THAT(floats.Message(), HasSubstr(kQuery + ".weight\": stored as F8_E4M3; config.json "
                                                   "makes it I8"));
  EditedScales integers("fp8-channel");
  integers.header[kQuery + ".weight"]["dtype"] = "I8";
  EXPECT_THAT(integers.Message(), HasSubstr(kQuery + ".weight\": stored as I8; config.json makes "
                                                     "it F8_E4M3"));
  EditedScales zero("int8-channel");
  zero.Add(kQuery + ".weight_zero_point", "I8", {64, 1}, 64);
  EXPECT_THAT(zero.Message(), HasSubstr("weight_zero_point\": is not part of the model"));
}

// Scales of what the description calls wide, and of what is no module; wide matrices where it calls
// them 8-bit, and the reverse.
TEST(QuantizedCheckpointTest, FilesThatDifferFromTheirDescriptionAreRefused) {
  EditedScales extra("fp8-channel");
  extra.Add("lm_head.weight_scale", "BF16", {128, 1}, 256);
  EXPECT_THAT(extra.Message(), HasSubstr("\"lm_head.weight_scale\": is not part of the model"));
  EditedScales zero("fp8-channel");
  zero.Add(kQuery + ".weight_zero_point", "F8_E4M3", {64, 1}, 64);
  EXPECT_THAT(zero.Message(), HasSubstr("weight_zero_point\": is not part of the model"));
  EditedScales wide("fp8-channel");
  const std::string down = "model.layers.1.mlp.down_proj";
  wide.config["quantization_config"]["ignore"] = {"lm_head", down};
  EXPECT_THAT(wide.Message(), AllOf(HasSubstr(down + ".weight\": "), HasSubstr("F8_E4M3"),
                                    HasSubstr(down + ".weight_scale\": is not part")));
  EditedScales narrow("fp8-tensor-static");
  narrow.config["quantization_config"]["ignore"] = {"lm_head", "re:.*layers[.]0[.]self_attn.*"};
  EXPECT_THAT(narrow.Message(), AllOf(HasSubstr(down + ".weight\": stored as BF16"),
                                      HasSubstr(down + ".weight_scale\": is missing")));
  EditedScales plain("fp8-channel");
  plain.config.erase("quantization_config");
  EXPECT_THAT(plain.Message(), HasSubstr("F8_E4M3"));
}

// The logits after `tokens` with 8-bit keys and values.
std::vector<float> LogitsOf(const EditedScales& checkpoint) {
  const TempDir dir;
  checkpoint.WriteTo(dir);
  const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 1)[0]);
  ModelRunner runner(dir.path(), {}, {.kv_dtype = DType::kE4M3}, *backend);
  return runner.RunChunked({1, 5, 9, 77, 3, 4}, 3, {5});
}

const std::string kAttention = "model.layers.1.self_attn.";

// A copy of fp8-kv whose scales of layer 1's values are named so.
EditedScales WithValueScales(const std::string& name) {
  EditedScales checkpoint(kEightBitKv);
  checkpoint.eight_bit_kv = true;
  checkpoint.header["model.layers.1." + name] = checkpoint.header[kAttention + "v_scale"];
  checkpoint.header.erase(kAttention + "v_scale");
  return checkpoint;
}

TEST(QuantizedCheckpointTest, ScalesOfKeysAndValuesHaveTheNamesOfTheirWriters) {
  const std::vector<float> expected = LogitsOf(EditedScales(kEightBitKv));
  for (const char* name : {"self_attn.v_proj.v_scale", "self_attn.v_proj.output_scale"}) {
    EXPECT_EQ(LogitsOf(WithValueScales(name)), expected) << name;
  }
  // One for both, without those of keys, is that of values here.
  EditedScales both = WithValueScales("self_attn.kv_scale");
  EXPECT_EQ(LogitsOf(both), expected);
  both.header["rotary_emb.inv_freq"] = both.header[kAttention + "k_scale"];
  both.header.erase(kAttention + "k_scale");
  EXPECT_TRUE(both.Load().ok()) << both.Load();
  EXPECT_NE(LogitsOf(both), expected);
  // Without scales, elements are the values.
  const EditedScales none = WithValueScales("rotary_emb.inv_freq");
  EditedScales ones(kEightBitKv);
  ones.Set(kAttention + "v_scale", 0, 1);
  EXPECT_EQ(LogitsOf(none), LogitsOf(ones));
  EXPECT_NE(LogitsOf(none), expected);
}

// compressed-tensors stores them so with the strategy "attn_head".
TEST(QuantizedCheckpointTest, ScalesOfKeysAndValuesAreAColumnOfAnyShape) {
  const std::vector<float> expected = LogitsOf(EditedScales(kEightBitKv));
  for (const size_t dimensions : {1, 2, 3, 4}) {
    EditedScales checkpoint(kEightBitKv);
    std::vector<int64_t> heads(dimensions, 1);
    checkpoint.header[kAttention + "v_scale"]["shape"] = heads;
    heads[0] = 2;
    checkpoint.header[kAttention + "k_scale"]["shape"] = heads;
    EXPECT_EQ(LogitsOf(checkpoint), expected) << dimensions;
  }
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1, 2}, std::vector<int64_t>{1, 2, 1}, std::vector<int64_t>{1, 1, 2}}) {
    EditedScales checkpoint(kEightBitKv);
    checkpoint.eight_bit_kv = true;
    checkpoint.header[kAttention + "k_scale"]["shape"] = shape;
    EXPECT_THAT(checkpoint.Message(), HasSubstr(kAttention + "k_scale\": has shape [1, "));
  }
}

// Warnings of missing scales among the last problems of the log.
int64_t WarningsOfKvScales() {
  const std::vector<LoggedProblem> problems = LastProblems();
  return std::ranges::count_if(problems, [](const LoggedProblem& problem) {
    return problem.text.find("lacks scales of keys or values") != std::string::npos;
  });
}

TEST(QuantizedCheckpointTest, MissingScalesOfKeysAndValuesAreWarnedOfOnce) {
  const int64_t before = WarningsOfKvScales();
  EditedScales checkpoint(kEightBitKv);
  EditedScales none("llama");
  EXPECT_TRUE(none.Load().ok());
  checkpoint.eight_bit_kv = true;
  EXPECT_TRUE(checkpoint.Load().ok());
  EXPECT_EQ(WarningsOfKvScales(), before);
  none.eight_bit_kv = true;
  EXPECT_TRUE(none.Load().ok());
  EXPECT_EQ(WarningsOfKvScales(), before + 1);
  // Those of one layer's values alone.
  EXPECT_TRUE(WithValueScales("rotary_emb.inv_freq").Load().ok());
  EXPECT_EQ(WarningsOfKvScales(), before + 2);
}

TEST(QuantizedCheckpointTest, BadScalesOfKeysAndValuesAreRefusedByElement) {
  for (const float value : {0.0f, -1.0f, HUGE_VALF, NAN}) {
    EditedScales checkpoint(kEightBitKv);
    checkpoint.Set(kAttention + "k_scale", 1, value);
    EXPECT_TRUE(checkpoint.Load().ok()) << "wide keys and values have no scales";
    checkpoint.eight_bit_kv = true;
    EXPECT_THAT(checkpoint.Message(),
                AllOf(HasSubstr("/model.safetensors: tensor \"" + kAttention + "k_scale\": "),
                      HasSubstr("element 1 is "), HasSubstr("above 0")));
  }
  EditedScales three(kEightBitKv);
  three.eight_bit_kv = true;
  three.header["rotary_emb.inv_freq"] = three.header[kAttention + "k_scale"];
  three.header.erase(kAttention + "k_scale");
  three.Add(kAttention + "k_scale", "F32", {3}, 12);
  EXPECT_THAT(three.Message(),
              AllOf(HasSubstr(kAttention + "k_scale\": has shape [3]"), HasSubstr("are 1 or 2")));
  // So small that no float is its inverse: elements are zeros or the largest.
  EditedScales least(kEightBitKv);
  least.Set(kAttention + "v_scale", 0, 1e-44f);
  for (const float logit : LogitsOf(least)) EXPECT_TRUE(std::isfinite(logit));
}

TEST(QuantizedCheckpointTest, ScalesOfActivationsStayUnread) {
  EditedScales checkpoint("fp8-autofp8");
  checkpoint.Set(kQuery + ".input_scale", 0, NAN);
  EXPECT_TRUE(checkpoint.Load().ok()) << checkpoint.Load();
  // They belong to quantized models only.
  EditedScales wide("llama");
  wide.Add(kQuery + ".input_scale", "F32", {1}, 4);
  EXPECT_THAT(wide.Message(), HasSubstr("input_scale\": is not part of the model"));
}

}  // namespace
}  // namespace quire::testing

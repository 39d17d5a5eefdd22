// Checkpoints with matrices of integers, as their writers store them, against float64 from the
// published bytes; and what is wrong with their tensors, by name.
// Covers engine/model/packed/packed_matrix.h
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "engine/model/checkpoint/config_quantization.h"
#include "engine/model/model.h"
#include "tests/engine/model/edited_checkpoint.h"
#include "tests/engine/model/model_runner.h"
#include "tests/engine/model/narrow_checkpoints.h"
#include "tests/engine/model/temp_dir.h"

namespace quire::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Activations are not rounded, so that only float32's own errors remain: below 1e-6 here.
constexpr double kTolerance = 1e-5;

// The logits of a prompt on some ranks, run in chunks.
std::vector<float> LogitsOf(const std::string& name, const Expected::Prompt& prompt, int32_t ranks,
                            int32_t chunk) {
  std::vector<std::unique_ptr<Backend>> backends = CreateCpuBackends(ranks, ranks);
  std::vector<std::vector<float>> logits(ranks);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ModelRunner runner(name, {rank, ranks}, {}, *backends[rank]);
      logits[rank] = runner.RunChunked(prompt.tokens, chunk, prompt.positions);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& other : logits) EXPECT_EQ(other, logits[0]);
  return logits[0];
}

class PackedParity : public ::testing::TestWithParam<NarrowCheckpoint> {};

TEST_P(PackedParity, LogitsAreThoseOfFloat64) {
  const Expected expected = ReadExpected(GetParam().name);
  ASSERT_EQ(expected.prompts.size(), 3);
  for (const Expected::Prompt& prompt : expected.prompts) {
    for (const int32_t ranks : {1, 2}) {
      if (ranks > 1 && GetParam().any_order) continue;
      SCOPED_TRACE(std::to_string(prompt.tokens.size()) + " tokens on " + std::to_string(ranks));
      const std::vector<float> logits = LogitsOf(GetParam().name, prompt, ranks, 1000);
      EXPECT_LT(RelativeError(logits, prompt.logits), kTolerance);
      EXPECT_EQ(LogitsOf(GetParam().name, prompt, ranks, 7), logits);
    }
  }
}

// Dummy weights have the shapes and types of loaded ones; the plan counts what both take.
TEST_P(PackedParity, DummyWeightsTakeThePlannedMemory) {
  const ModelConfig model = *ModelConfig::Load(ModelDir(GetParam().name));
  ModelOptions options{
      .dummy_weights = true, .max_tokens = 8, .max_logit_rows = 1, .max_model_len = 16};
  const int64_t dummy = PlanModelMemory(model, {}, options).weight_bytes;
  options.dummy_weights = false;
  const int64_t loaded = PlanModelMemory(model, {}, options).weight_bytes;
  // Orders of columns are not made up.
  EXPECT_EQ(dummy < loaded, GetParam().any_order);
  ModelConfig wide = model;
  wide.quantization = {};
  EXPECT_LT(loaded, PlanModelMemory(wide, {}, options).weight_bytes);
  options.dummy_weights = true;
  const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 1)[0]);
  EXPECT_TRUE(LoadModel("no directory", model, {}, options, *backend).ok());
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, PackedParity, ::testing::ValuesIn(kPackedCheckpoints),
                         NameOfNarrow);

// A copy whose tensors a test edits.
class EditedTensors : public EditedCheckpoint {
 public:
  using EditedCheckpoint::EditedCheckpoint;

  template <typename T>
  void Set(const std::string& name, int64_t element, T value) {
    const size_t begin = header.at(name).at("data_offsets")[0].get<size_t>();
    std::memcpy(&data.at(begin + static_cast<size_t>(element) * sizeof(T)), &value, sizeof(T));
  }
  // Takes a tensor away, its bytes under a name that is harmless.
  void Remove(const std::string& name) {
    header["model.layers.0.rotary_emb.inv_freq"] = header.at(name);
    header.erase(name);
  }
  json& quantization() { return config["quantization_config"]; }
  absl::Status Load(int32_t ranks = 1) const {
    const TempDir dir;
    WriteTo(dir);
    const absl::StatusOr<ModelConfig> model = ModelConfig::Load(dir.path());
    if (!model.ok()) return model.status();
    const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 1)[0]);
    const ModelOptions options{
        .max_tokens = 4, .max_logit_rows = 1, .max_model_len = 32, .weights_in_place = true};
    return LoadModel(dir.path(), *model, {.size = ranks}, options, *backend).status();
  }
  std::string Message(int32_t ranks = 1) const {
    const absl::Status status = Load(ranks);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
};

const std::string kQuery = "model.layers.0.self_attn.q_proj";
const std::string kDown = "model.layers.1.mlp.down_proj";

TEST(PackedCheckpointTest, ScalesThatAreNotFiniteAreRefusedByElement) {
  for (const uint16_t bits : {0x7c00, 0xfc00, 0x7e00}) {  // infinities, NaN
    EditedTensors gptq("int4-gptq");
    gptq.Set<uint16_t>(kQuery + ".scales", 64 + 5, bits);
    EXPECT_THAT(gptq.Message(),
                AllOf(HasSubstr("/model.safetensors: tensor \"" + kQuery + ".scales\": "),
                      HasSubstr("element (1, 5) is "), HasSubstr("a scale is finite")));
  }
  EditedTensors packed("int4-ct");
  packed.Set<uint16_t>(kDown + ".weight_scale", 4 * 7 + 2, 0x7f80);
  EXPECT_THAT(packed.Message(), HasSubstr(kDown + ".weight_scale\": element (7, 2) is inf"));
  // The files have one scale of 0 in each matrix already; below it is a scale, too.
  EditedTensors negative("int4-ct");
  negative.Set<uint16_t>(kDown + ".weight_scale", 0, 0xbf80);
  EXPECT_TRUE(negative.Load().ok()) << negative.Load();
}

TEST(PackedCheckpointTest, MissingAndMisshapenTensorsAreNamed) {
  const struct {
    const char* model;
    std::vector<std::string> endings;
  } kCases[] = {
      {"int4-ct-zeros", {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_shape"}},
      {"int4-ct-order", {".weight_g_idx"}},
      {"int8-plain", {".weight", ".weight_scale", ".weight_zero_point"}},
      {"int4-awq", {".qweight", ".qzeros", ".scales"}},
      {"int4-gptq-order", {".qweight", ".qzeros", ".scales", ".g_idx"}}};
  for (const auto& [model, endings] : kCases) {
    for (const std::string& ending : endings) {
      EditedTensors missing(model);
      missing.Remove(kQuery + ending);
      EXPECT_THAT(missing.Message(), HasSubstr("tensor \"" + kQuery + ending + "\": is missing"));
      EditedTensors shaped(model);
      shaped.header[kQuery + ending]["shape"].push_back(1);
      EXPECT_THAT(shaped.Message(), HasSubstr(kQuery + ending + "\": has shape ["));
    }
  }
  // Without an order, g_idx says nothing.
  EditedTensors without("int4-gptq");
  without.Remove(kQuery + ".g_idx");
  EXPECT_TRUE(without.Load().ok()) << without.Load();
  // Words of another type, and the shape that the writer says.
  EditedTensors floats("int4-gptq");
  floats.header[kQuery + ".qweight"]["dtype"] = "F32";
  EXPECT_THAT(floats.Message(), HasSubstr(kQuery + ".qweight\": stored as F32; config.json makes"));
  EditedTensors says("int4-ct");
  says.Set<int64_t>(kQuery + ".weight_shape", 1, 63);
  EXPECT_THAT(says.Message(), HasSubstr(kQuery + ".weight_shape\": says [64, 63], config.json"));
}

TEST(PackedCheckpointTest, GroupsOfColumnsAreChecked) {
  for (const char* model : {"int4-gptq", "int4-gptq-order", "int4-ct-order"}) {
    const std::string name = kDown + (model[5] == 'c' ? ".weight_g_idx" : ".g_idx");
    for (const int32_t group : {-1, 4, 1 << 30}) {
      EditedTensors outside(model);
      outside.Set<int32_t>(name, 9, group);
      EXPECT_THAT(outside.Message(),
                  AllOf(HasSubstr(name + "\": element 9 is " + std::to_string(group)),
                        HasSubstr("has 4 groups")));
    }
  }
  EditedTensors uneven("int4-gptq-order");
  for (int64_t i = 0; i < 128; ++i) uneven.Set<int32_t>(kDown + ".g_idx", i, i < 40 ? 0 : i / 32);
  EXPECT_THAT(uneven.Message(), HasSubstr(kDown + ".g_idx\": group 0 has 40 columns; config.json"));
  // Sorted where the description says so.
  EditedTensors order("int4-gptq");
  order.Set<int32_t>(kDown + ".g_idx", 0, 1);
  EXPECT_THAT(order.Message(),
              AllOf(HasSubstr(kDown + ".g_idx\": column 0 is of group 1"), HasSubstr("desc_act")));
  EditedTensors fused("int4-gptq-order");
  for (int64_t i = 0; i < 64; ++i) {
    fused.Set<int32_t>("model.layers.0.self_attn.k_proj.g_idx", i, static_cast<int32_t>(i / 32));
  }
  EXPECT_THAT(fused.Message(),
              HasSubstr("k_proj.g_idx\": orders the columns otherwise than \"" + kQuery + "\""));
}

// Every zero of "int4-gptq-order", which is symmetric, as one of the two forms stores it.
void SetZeros(EditedTensors& model, uint32_t word) {
  for (const auto& [name, entry] : model.header.items()) {
    if (!name.ends_with(".qzeros")) continue;
    const auto shape = entry.at("shape").get<std::vector<int64_t>>();
    for (int64_t i = 0; i < shape[0] * shape[1]; ++i) model.Set<uint32_t>(name, i, word);
  }
}

// Files exist with the zeros of one form and the label of the other.
TEST(PackedCheckpointTest, SymmetricZerosAreTheMiddleWhateverTheFormSays) {
  const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 1)[0]);
  ModelRunner expected("int4-gptq-order", {}, {}, *backend);
  const std::vector<float> logits = expected.RunChunked({1, 5, 9, 77}, 4, {3});
  for (const uint32_t word : {0x77777777u, 0x88888888u}) {
    for (const char* form : {"gptq", "gptq_v2"}) {
      EditedTensors model("int4-gptq-order");
      SetZeros(model, word);
      model.quantization()["checkpoint_format"] = form;
      const TempDir dir;
      model.WriteTo(dir);
      ModelRunner other(dir.path(), {}, {}, *backend);
      EXPECT_EQ(other.RunChunked({1, 5, 9, 77}, 4, {3}), logits) << form << " " << word;
    }
  }
}

TEST(PackedCheckpointTest, ZerosThatAreNotSymmetricAreRefusedByName) {
  EditedTensors odd("int4-gptq-order");
  odd.Set<uint32_t>(kDown + ".qzeros", 8 + 1, 0x77767777);  // group 1, rows 8 to 15
  EXPECT_THAT(odd.Message(), AllOf(HasSubstr(kDown + ".qzeros\": row 12, group 1: the zero is 6"),
                                   HasSubstr("so all zeros are 7")));
  odd.quantization()["sym"] = false;
  EXPECT_TRUE(odd.Load().ok()) << odd.Load();
  // Zeros of AWQ are never stored less 1.
  EditedTensors awq("int4-awq");
  SetZeros(awq, 0x77777777);
  EXPECT_TRUE(awq.Load().ok()) << awq.Load();
  awq.quantization()["zero_point"] = false;
  EXPECT_THAT(awq.Message(), HasSubstr("the zero is 7; config.json says symmetric"));
  SetZeros(awq, 0x88888888);
  EXPECT_TRUE(awq.Load().ok()) << awq.Load();
}

// Some writers store biases of zeros beside every matrix.
TEST(PackedCheckpointTest, ABiasThatTheModelLacksIsZero) {
  EditedTensors zero("int4-gptq");
  zero.Add(kQuery + ".bias", "F16", {64}, 128);
  EXPECT_TRUE(zero.Load().ok()) << zero.Load();
  zero.Set<uint16_t>(kQuery + ".bias", 63, 1);
  EXPECT_THAT(zero.Message(), HasSubstr(kQuery + ".bias\": is not zero; config.json describes no"));
}

// An order that changes nothing costs nothing, and is no other model.
TEST(PackedCheckpointTest, AnOrderThatIsNoneIsTheSameModel) {
  const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 1)[0]);
  EditedTensors sorted("int4-gptq");
  sorted.quantization()["desc_act"] = true;
  const TempDir dir;
  sorted.WriteTo(dir);
  ModelRunner one("int4-gptq", {}, {}, *backend), other(dir.path(), {}, {}, *backend);
  EXPECT_EQ(one.RunChunked({1, 5, 9, 77}, 4, {3}), other.RunChunked({1, 5, 9, 77}, 4, {3}));
}

TEST(PackedCheckpointTest, ShapesThatDoNotDivideAreNamed) {
  EXPECT_THAT(EditedTensors("int4-gptq-order").Message(2),
              AllOf(HasSubstr("--tensor-parallel-size 2: columns"), HasSubstr("desc_act")));
  EXPECT_THAT(EditedTensors("int4-ct").Message(4),
              HasSubstr("num_attention_heads * head_dim 16 of a rank: matrices of int4 take "
                        "multiples of 32"));
  const ModelConfig model = *ModelConfig::Load(ModelDir("int4-ct"));
  EXPECT_EQ(model.TensorParallelSizes(), (std::vector<int32_t>{1, 2}));
  EditedTensors large("int4-ct");
  large.quantization()["config_groups"]["group_0"]["weights"]["group_size"] = 128;
  EXPECT_THAT(large.Message(), HasSubstr("hidden_size 64: matrices of int4 take multiples of 128"));
  EditedTensors odd("int4-gptq");
  odd.config["intermediate_size"] = 120;
  EXPECT_THAT(odd.Message(), HasSubstr("intermediate_size 120: matrices of int4 take"));
}

}  // namespace
}  // namespace quire::testing

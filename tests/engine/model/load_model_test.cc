// LoadModel: bad checkpoints by file and tensor, the memory plan against the memory taken,
// conversions and slices, and how long a small model takes to load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/model/activations.h"
#include "engine/model/checkpoint/families.h"
#include "engine/model/checkpoint/weight_reader.h"
#include "engine/model/checkpoint/weights.h"
#include "engine/model/decoder.h"
#include "engine/model/decoder_weights.h"
#include "engine/model/model.h"
#include "tests/engine/forwarding_backend.h"
#include "tests/engine/model/edited_checkpoint.h"
#include "tests/engine/model/model_runner.h"
#include "tests/engine/model/temp_dir.h"

namespace quire::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Counts the memory taken from the backend it stands before.
class CountingBackend final : public ForwardingBackend {
 public:
  Buffer Allocate(size_t bytes) override {
    allocated_bytes += static_cast<int64_t>(bytes);
    return bytes > limit_bytes ? Buffer() : ForwardingBackend::Allocate(bytes);
  }

  int64_t allocated_bytes = 0;
  size_t limit_bytes = SIZE_MAX;
};

constexpr ModelOptions kOptions{.max_tokens = 32, .max_logit_rows = 4, .max_model_len = 128};

// A copy of a checkpoint that a test edits and loads.
class LoadedCheckpoint : public EditedCheckpoint {
 public:
  using EditedCheckpoint::EditedCheckpoint;

  absl::Status Load() const {
    const TempDir dir;
    WriteTo(dir);
    absl::StatusOr<ModelConfig> loaded = ModelConfig::Load(dir.path());
    if (!loaded.ok()) return loaded.status();
    CountingBackend backend;
    return LoadModel(dir.path(), *loaded, {}, kOptions, backend).status();
  }
  std::string Message() const {
    const absl::Status status = Load();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr("/model.safetensors: tensor "));
    return std::string(status.message());
  }
};

TEST(LoadTest, LoadsTheCopiedCheckpoint) {
  EXPECT_TRUE(LoadedCheckpoint("llama").Load().ok());
  EXPECT_TRUE(LoadedCheckpoint("qwen3").Load().ok());
}

TEST(LoadTest, NamesTheMissingTensor) {
  for (const char* name : {"model.layers.1.self_attn.k_proj.weight", "model.norm.weight",
                           "lm_head.weight", "model.embed_tokens.weight"}) {
    LoadedCheckpoint c("llama");
    c.header["model.layers.0.rotary_emb.inv_freq"] = c.header[name];  // its bytes stay
    c.header.erase(name);
    EXPECT_THAT(c.Message(), AllOf(HasSubstr(name), HasSubstr("is missing")));
  }
  // The flags of the config ask for tensors that are not there.
  LoadedCheckpoint bias("llama");
  bias.config["attention_bias"] = true;
  EXPECT_THAT(bias.Message(), HasSubstr("self_attn.q_proj.bias\": is missing"));
}

TEST(LoadTest, NamesTheExtraTensorUnlessItIsHarmless) {
  LoadedCheckpoint extra("llama");
  extra.Add("model.layers.0.self_attn.q_proj.bias", "F32", {64}, 256);
  EXPECT_THAT(extra.Message(), AllOf(HasSubstr("self_attn.q_proj.bias"), HasSubstr("is not part")));
  LoadedCheckpoint fourth("llama");
  fourth.config["num_hidden_layers"] = 2;
  EXPECT_THAT(fourth.Message(), AllOf(HasSubstr("model.layers.2."), HasSubstr("is not part")));
  LoadedCheckpoint table("llama");
  table.Add("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {8}, 32);
  EXPECT_TRUE(table.Load().ok());
  LoadedCheckpoint tied("qwen3");
  tied.Add("lm_head.weight", "F32", {256, 64}, 65536);
  EXPECT_TRUE(tied.Load().ok());
}

// Names every tensor that begins with a key by its value instead, as transformers' tables of
// conversions do (_checkpoint_conversion_mapping of the two families that see).
using Renaming = std::vector<std::pair<std::string, std::string>>;
void Rename(const Renaming& renaming, LoadedCheckpoint& checkpoint) {
  json header = json::object();
  for (const auto& [name, entry] : checkpoint.header.items()) {
    const auto rule = std::ranges::find_if(
        renaming, [&name = name](const auto& from) { return name.starts_with(from.first); });
    header[rule == renaming.end() ? name : rule->second + name.substr(rule->first.size())] = entry;
  }
  checkpoint.header = header;
}
const Renaming kAlone = {{"model.", ""}};
const Renaming kModules = {{"language_model.model.", "model.language_model."},
                           {"vision_tower.", "model.vision_tower."},
                           {"multi_modal_projector.", "model.multi_modal_projector."},
                           {"language_model.lm_head.", "lm_head."}};

TEST(LoadTest, FindsTheDecoderByOtherNames) {
  const std::pair<const char*, Renaming> cases[] = {{"llama", kAlone},
                                                    {"qwen3", kAlone},
                                                    {"exaone", {{"transformer.", ""}}},
                                                    {"mistral-small3", kModules},
                                                    {"gemma3-vision", kModules}};
  for (const auto& [name, renaming] : cases) {
    SCOPED_TRACE(name);
    LoadedCheckpoint checkpoint(name);
    Rename(renaming, checkpoint);
    const TempDir dir;
    checkpoint.WriteTo(dir);
    const Expected expected = ReadExpected(name);
    const Expected::Prompt& prompt = expected.prompts[1];
    std::vector<int32_t> known = prompt.tokens;
    known.insert(known.end(), prompt.greedy.begin(), prompt.greedy.end() - 1);
    CountingBackend backend;
    ModelRunner runner(dir.path(), {}, {}, backend);
    EXPECT_LT(RelativeError(runner.RunChunked(known, 100, prompt.positions), prompt.logits), 1e-4);
  }
}

// Exceptions of a quantization may name modules under the other root; the model has the tensors'.
TEST(LoadTest, ExceptionsAreUnderEitherRoot) {
  const std::string down = "layers.0.mlp.down_proj";
  const auto wide = [](const LoadedCheckpoint& checkpoint) {
    const TempDir dir;
    checkpoint.WriteTo(dir);
    return ModelConfig::Load(dir.path())->quantization.wide;
  };
  LoadedCheckpoint checkpoint("fp8-block");
  json& exceptions = checkpoint.config["quantization_config"]["modules_to_not_convert"];
  exceptions = {"model." + down};
  EXPECT_THAT(wide(checkpoint), ElementsAre("model." + down));
  Rename(kAlone, checkpoint);
  EXPECT_THAT(wide(checkpoint), ElementsAre(down));
  exceptions = {down};
  EXPECT_THAT(wide(checkpoint), ElementsAre(down));
}

TEST(LoadTest, SaysHowToServeADecoderWithoutAHead) {
  const auto without_head = [](const Renaming& renaming) {
    LoadedCheckpoint checkpoint("llama");
    Rename(renaming, checkpoint);
    // Its bytes stay.
    checkpoint.header["layers.0.rotary_emb.inv_freq"] = checkpoint.header["lm_head.weight"];
    checkpoint.header.erase("lm_head.weight");
    return checkpoint;
  };
  LoadedCheckpoint alone = without_head(kAlone);
  EXPECT_THAT(alone.Message(), HasSubstr("tensor \"lm_head.weight\": is missing; for a model that "
                                         "only embeds, set \"tie_word_embeddings\" to true"));
  alone.config["tie_word_embeddings"] = true;
  EXPECT_TRUE(alone.Load().ok());
  EXPECT_THAT(without_head({}).Message(), ::testing::Not(HasSubstr("embeds")));
}

TEST(LoadTest, NamesAllTensorsThatAreWrong) {
  LoadedCheckpoint c("llama");
  const std::string k = "model.layers.0.self_attn.k_proj.weight", norm = "model.norm.weight";
  for (const std::string& name : {k, norm}) {
    c.header[name + "_"] = c.header[name];
    c.header.erase(name);
  }
  c.header["model.layers.2.mlp.down_proj.weight"]["shape"] = {112, 64};
  EXPECT_THAT(c.Message(),
              AllOf(HasSubstr(k + "\": is missing\n"), HasSubstr(norm + "\": is missing\n"),
                    HasSubstr("down_proj.weight\": has shape [112, 64]"),
                    HasSubstr(k + "_\": is not part"), HasSubstr(norm + "_\": is not part")));
}

TEST(LoadTest, CountsTheTensorsBeyondTheFirstOfAKind) {
  LoadedCheckpoint c("llama");
  c.config["num_hidden_layers"] = 30;  // of 3: nine tensors a layer are missing
  EXPECT_THAT(c.Message(), HasSubstr("\nand 223 more such faults"));
}

TEST(LoadTest, NamesTheMisshapenTensor) {
  LoadedCheckpoint transposed("llama");
  transposed.header["model.layers.2.mlp.down_proj.weight"]["shape"] = {112, 64};
  EXPECT_THAT(transposed.Message(),
              AllOf(HasSubstr("down_proj.weight"), HasSubstr("has shape [112, 64]"),
                    HasSubstr("makes it [64, 112]")));
  LoadedCheckpoint vector("llama");
  vector.header["model.norm.weight"]["shape"] = {64, 1};
  EXPECT_THAT(vector.Message(), AllOf(HasSubstr("model.norm.weight"), HasSubstr("[64, 1]")));
  LoadedCheckpoint config("llama");
  config.config["vocab_size"] = 260;
  EXPECT_THAT(config.Message(), AllOf(HasSubstr("embed_tokens"), HasSubstr("makes it [260, 64]")));
}

TEST(LoadTest, NamesTheTensorOfAnotherType) {
  LoadedCheckpoint c("llama");
  c.header["model.norm.weight"]["dtype"] = "I32";
  EXPECT_THAT(c.Message(), AllOf(HasSubstr("model.norm.weight"), HasSubstr("stored as I32"),
                                 HasSubstr("F32, BF16, F16")));
}

TEST(LoadTest, NamesTheMemoryThatDoesNotFit) {
  const ModelConfig config = *ModelConfig::Load(ModelDir("llama"));
  const ModelMemory plan = PlanModelMemory(config, {}, kOptions);
  CountingBackend backend;
  backend.limit_bytes = static_cast<size_t>(plan.weight_bytes) - 1;
  absl::Status status = LoadModel(ModelDir("llama"), config, {}, kOptions, backend).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(plan.weight_bytes)));
}

TEST(LoadTest, TakesExactlyThePlannedMemoryAndNoneAfterwards) {
  for (const char* name : {"llama", "llama-tied-bias", "qwen3"}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      const ModelConfig config = *ModelConfig::Load(ModelDir(name));
      ModelOptions options = kOptions;
      options.weight_dtype = dtype;
      CountingBackend backend;
      ASSERT_TRUE(LoadModel(ModelDir(name), config, {}, options, backend).ok());
      const ModelMemory plan = PlanModelMemory(config, {}, options);
      EXPECT_EQ(backend.allocated_bytes, plan.weight_bytes + plan.arena_bytes);
      // Every parameter is held once: matrices in their type, norms and biases in float32.
      const int64_t parameters = config.NumParameters();
      EXPECT_GE(plan.weight_bytes, parameters * static_cast<int64_t>(SizeOf(dtype)));
      EXPECT_LE(plan.weight_bytes, parameters * 4 + config.num_layers * 12 * 256 + 1024);
    }
  }
  CountingBackend backend;
  ModelRunner runner("llama", {}, {}, backend);
  runner.RunChunked({1, 2, 3}, 2, {2});
  const int64_t uploads_of_a_step = [&] {
    const int64_t before = backend.allocated_bytes;
    runner.Run({{.tokens = {1}, .logit_rows = {0}}});
    return backend.allocated_bytes - before;
  }();
  // The runner's own uploads: five int32 and one int64 of a token, two offsets, a row.
  EXPECT_EQ(uploads_of_a_step, 7 * 4 + 8);
}

// Loading takes what the plan counts of narrow matrices and their scales, on one rank and on the
// last of two, with 8-bit keys and values too. Dummy weights take as much, but for orders of
// columns, which are not made up.
class NarrowMemoryTest : public ::testing::TestWithParam<const char*> {
 protected:
  void ExpectPlanned(const ModelConfig& config, const TpInfo& tp, const ModelOptions& options) {
    const ModelMemory plan = PlanModelMemory(config, tp, options);
    CountingBackend backend;
    const absl::Status loaded =
        LoadModel(ModelDir(GetParam()), config, tp, options, backend).status();
    ASSERT_TRUE(loaded.ok()) << loaded;
    EXPECT_EQ(backend.allocated_bytes, plan.weight_bytes + plan.arena_bytes);
  }
};

TEST_P(NarrowMemoryTest, IsThePlanned) {
  const ModelConfig config = *ModelConfig::Load(ModelDir(GetParam()));
  ModelConfig wide = config;
  wide.quantization = {};
  for (const TpInfo& tp : {TpInfo{}, TpInfo{.rank = 1, .size = 2}}) {
    if (!config.CheckTensorParallel(tp.size).ok()) continue;
    for (const bool eight_bit_kv : {false, true}) {
      for (const bool dummy : {false, true}) {
        ModelOptions options = kOptions;
        options.eight_bit_kv = eight_bit_kv;
        options.dummy_weights = dummy;
        SCOPED_TRACE(std::to_string(tp.size) + (dummy ? " ranks, dummy" : " ranks"));
        ExpectPlanned(config, tp, options);
        EXPECT_LT(PlanModelMemory(config, tp, options).weight_bytes,
                  PlanModelMemory(wide, tp, options).weight_bytes);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, NarrowMemoryTest,
                         ::testing::Values("fp8-channel", "fp8-autofp8", "fp8-block",
                                           "fp8-block-ragged", "fp8-kv", "int8-channel", "int4-awq",
                                           "int4-ct", "int4-gptq-order", "int8-gptq", "int8-plain"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Matrices that become 8-bit as they are read take what the plan says, and at no time more: a wide
// copy of them is never on the device.
TEST(LoadTest, EightBitCopiesAreAllThatLoadingTakes) {
  for (const char* name : {"llama-bf16", "qwen3", "gemma2"}) {
    SCOPED_TRACE(name);
    ModelConfig config = *ModelConfig::Load(ModelDir(name));
    const int64_t wide = PlanModelMemory(config, {}, kOptions).weight_bytes;
    config.quantization.source = Quantization::Source::kWhileLoading;
    const ModelMemory plan = PlanModelMemory(config, {}, kOptions);
    EXPECT_LT(plan.weight_bytes, wide);
    CountingBackend backend;
    ASSERT_TRUE(LoadModel(ModelDir(name), config, {}, kOptions, backend).ok());
    EXPECT_EQ(backend.allocated_bytes, plan.weight_bytes + plan.arena_bytes);
  }
}

// Every way to store a feed-forward layer, on a device that pads it to a multiple of 64: the
// results stay, and the plan has the memory taken.
TEST(LoadTest, PaddedWidthsChangeNoResult) {
  constexpr int32_t kMultiple = 64;
  for (const char* name : {"shape-odd-width", "shape-odd-share", "llama-tied-bias", "phi3",
                           "starcoder2", "gemma2", "internlm3"}) {
    SCOPED_TRACE(name);
    const ModelConfig config = *ModelConfig::Load(ModelDir(name));
    ASSERT_NE(config.intermediate_size % kMultiple, 0);
    const Expected expected = ReadExpected(name);
    const Expected::Prompt& prompt = expected.prompts[1];
    std::vector<int32_t> known = prompt.tokens;
    known.insert(known.end(), prompt.greedy.begin(), prompt.greedy.end() - 1);
    CountingBackend backend;
    ModelRunner runner(name, {}, {.width_multiple = kMultiple}, backend);
    EXPECT_LT(RelativeError(runner.RunChunked(known, 100, prompt.positions), prompt.logits), 1e-4);

    ModelOptions options = kOptions;
    const int64_t exact = PlanModelMemory(config, {}, options).weight_bytes;
    options.width_multiple = kMultiple;
    CountingBackend counting;
    ASSERT_TRUE(LoadModel(ModelDir(name), config, {}, options, counting).ok());
    const ModelMemory padded = PlanModelMemory(config, {}, options);
    EXPECT_EQ(counting.allocated_bytes, padded.weight_bytes + padded.arena_bytes);
    EXPECT_GT(padded.weight_bytes, exact);
  }
}

TEST(FamiliesTest, EveryArchitectureIsFoundByItsName) {
  for (const char* name :
       {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    ASSERT_NE(FindFamily(name), nullptr);
    EXPECT_EQ(FindFamily(name)->architecture, name);
  }
  EXPECT_EQ(FindFamily("MixtralForCausalLM"), nullptr);
  ModelConfig config = *ModelConfig::Load(ModelDir("llama"));
  config.architecture = "MixtralForCausalLM";
  CountingBackend backend;
  EXPECT_EQ(LoadModel(ModelDir("llama"), config, {}, kOptions, backend).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(DecoderWeightsTest, RanksShareMatricesAndRepeatNorms) {
  const ModelConfig config = *ModelConfig::Load(ModelDir("llama"));
  CountingBackend backend;
  absl::StatusOr<DecoderWeights> whole =
      DecoderWeights::Load(ModelDir("llama"), config, {}, ModelOptions{}, backend);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ(whole->layers.size(), 3u);
  // 259 rows of embedding and head become 2 x 136; the 7 norms of 64 stay whole.
  const int64_t padding = 2 * 13 * 64 * 4, norms = 7 * 64 * 4;
  for (int32_t rank : {0, 1}) {
    const int64_t half = DecoderWeights::TotalBytes(config, {rank, 2}, ModelOptions{});
    EXPECT_EQ(2 * half, DecoderWeights::TotalBytes(config, {}, ModelOptions{}) + padding + norms);
  }
}

// Checks one row of one matrix and one norm; the tests of FillUniform check the numbers.
TEST(DecoderWeightsTest, DummyWeightsNeedNoCheckpoint) {
  const ModelConfig config = *ModelConfig::Load(ModelDir("qwen2"));
  CountingBackend backend;
  const absl::StatusOr<DecoderWeights> dummy =
      DecoderWeights::Load("/nowhere", config, {}, {.dummy_weights = true}, backend);
  ASSERT_TRUE(dummy.ok()) << dummy.status();
  EXPECT_EQ(backend.allocated_bytes, DecoderWeights::TotalBytes(config, {}, ModelOptions{}));
  EXPECT_EQ(dummy->layers[1].mlp_norm.weight.ptr<float>()[63], 1.0f);
  const Weights& storage = dummy->storage;
  double squares = 0;
  for (int64_t i = 0; i < storage[0].size(); ++i) {
    const double value = storage[0].ptr<float>()[i];
    squares += value * value;
  }
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(storage[0].size())), 0.02, 0.001);
  EXPECT_NE(storage[1].row<float>(0)[0], storage[0].row<float>(0)[0]);
}

TEST(ActivationsTest, ViewsFitTheStepAndDoNotOverlapWhileBothLive) {
  const ModelConfig config = *ModelConfig::Load(ModelDir("llama"));
  CountingBackend backend;
  absl::StatusOr<Activations> activations = Activations::Create(config, {}, kOptions, backend);
  ASSERT_TRUE(activations.ok()) << activations.status();
  EXPECT_EQ(backend.allocated_bytes, Activations::TotalBytes(config, {}, kOptions));
  const StepTensors s = activations->For(5, 2);
  EXPECT_EQ(s.x.dim[0], 5);
  EXPECT_EQ(s.qkv.dim[1], (4 + 2 * 2) * 16);
  EXPECT_EQ(s.gate_up.dim[1], 2 * 112);
  EXPECT_EQ(s.row_x.dim[0], 2);
  EXPECT_EQ(activations->rope(Rotation::kGlobal).dim[0], kOptions.max_model_len);
  const StepTensors largest = activations->For(kOptions.max_tokens, kOptions.max_logit_rows);
  for (const auto& live : {std::vector{largest.residual, largest.x, largest.qkv, largest.attention,
                                       largest.row_x, largest.row_residual, largest.row_attention,
                                       activations->rope(Rotation::kGlobal)},
                           std::vector{largest.residual, largest.x, largest.gate_up, largest.gated,
                                       largest.row_x, largest.row_residual, largest.row_attention,
                                       activations->rope(Rotation::kGlobal)}}) {
    for (const TensorView& a : live) {
      for (const TensorView& b : live) {
        if (&a == &b) continue;
        EXPECT_TRUE(a.ptr<char>() + a.bytes() <= b.data || b.ptr<char>() + b.bytes() <= a.data);
      }
    }
  }
}

// One thread and more, through buffers and straight into place.
class WeightsTest : public ::testing::TestWithParam<WeightReading> {};
INSTANTIATE_TEST_SUITE_P(Ways, WeightsTest,
                         ::testing::Values(WeightReading{1, false}, WeightReading{3, false},
                                           WeightReading{1, true}, WeightReading{3, true}));

TEST_P(WeightsTest, LoadsRectanglesConvertsAndPads) {
  const WeightReading how = GetParam();
  const TempDir dir;
  // m = [[1, 2, 3], [4, 5, 6]] in bf16, v = [0.5, 1 + 2^-9] in f32.
  std::string data;
  for (float x : {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}) {
    const uint16_t bits = FromFloat<BF16>(x).bits;
    data.append(reinterpret_cast<const char*>(&bits), 2);
  }
  for (float x : {0.5f, 1.0f + 0x1p-9f}) data.append(reinterpret_cast<const char*>(&x), 4);
  dir.Write("model.safetensors",
            SafetensorsBytes(R"({"m":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                             R"("v":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})",
                             data));
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const WeightPart right{.name = "m", .shape = {2, 3}, .rows = {0, 2}, .columns = {1, 2}};
  const WeightPart bottom{.name = "m", .shape = {2, 3}, .rows = {1, 1}, .columns = {0, 2}};
  const WeightPart vector{.name = "v", .shape = {2}, .rows = {1, 1}};
  const std::vector<WeightSpec> specs = {
      {.dtype = DType::kF32, .rows = 4, .columns = 2, .parts = {right, bottom}},
      {.dtype = DType::kBF16, .rows = 1, .parts = {vector}},
      {.dtype = DType::kF32},
  };
  CountingBackend backend;
  const auto none = [](const std::string&) { return false; };
  absl::StatusOr<Weights> weights = Weights::Load(*checkpoint, specs, none, how, backend);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(backend.allocated_bytes, Weights::TotalBytes(specs));
  const float* m = (*weights)[0].ptr<float>();
  EXPECT_THAT(std::vector<float>(m, m + 8), ElementsAre(2, 3, 5, 6, 4, 5, 0, 0));
  // 1 + 2^-9 lies nearer to 1 than to the next bf16.
  EXPECT_EQ(ToFloat((*weights)[1].ptr<BF16>()[0]), 1.0f);
  EXPECT_TRUE((*weights)[2].empty());
}

// Rows of zeros between parts and columns of zeros behind them; the buffers of the pieces are used
// again, so what they held before must not show.
TEST_P(WeightsTest, PadsPartsWithZeros) {
  const TempDir dir;
  std::string data;
  for (int32_t i = 1; i <= 12; ++i) {
    const auto x = static_cast<float>(i);
    data.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  dir.Write("model.safetensors",
            SafetensorsBytes(R"({"m":{"dtype":"F32","shape":[4,3],"data_offsets":[0,48]}})", data));
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto rows = [](int64_t begin, int64_t count) {
    return WeightPart{
        .name = "m", .shape = {4, 3}, .rows = {begin, count}, .columns = {0, 3}, .zero_rows = 1};
  };
  WeightPart column{.name = "m", .shape = {4, 3}, .rows = {0, 4}, .columns = {1, 1}};
  const std::vector<WeightSpec> specs = {
      {.dtype = DType::kF32, .rows = 5, .columns = 3, .parts = {rows(0, 2), rows(3, 1)}},
      {.dtype = DType::kF32, .rows = 3, .columns = 4, .parts = {rows(1, 2)}},
      {.dtype = DType::kF32, .rows = 4, .columns = 2, .parts = {column}},
  };
  CountingBackend backend;
  const auto none = [](const std::string&) { return false; };
  absl::StatusOr<Weights> weights = Weights::Load(*checkpoint, specs, none, GetParam(), backend);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const auto values = [&](size_t i) {
    const TensorView& view = (*weights)[i];
    return std::vector<float>(view.ptr<float>(), view.ptr<float>() + view.size());
  };
  EXPECT_THAT(values(0), ElementsAre(1, 2, 3, 4, 5, 6, 0, 0, 0, 10, 11, 12, 0, 0, 0));
  EXPECT_THAT(values(1), ElementsAre(4, 5, 6, 0, 7, 8, 9, 0, 0, 0, 0, 0));
  EXPECT_THAT(values(2), ElementsAre(2, 0, 5, 0, 8, 0, 11, 0));
}

// A matrix of several pieces whose values follow from their places.
TEST_P(WeightsTest, LoadsMatricesOfManyPieces) {
  constexpr int64_t kRows = 5000, kColumns = 3000;
  const TempDir dir;
  std::string data(kRows * kColumns * 2, '\0');
  const auto value = [](int64_t i) {
    return static_cast<uint16_t>((i * 2654435761u >> 7) & 0x3fff);
  };
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    const uint16_t bits = value(i);  // below 0x4000: a number in any 16-bit type
    std::memcpy(&data[i * 2], &bits, 2);
  }
  dir.Write("model.safetensors",
            SafetensorsBytes(R"({"m":{"dtype":"BF16","shape":[5000,3000],"data_offsets":[0,)" +
                                 std::to_string(data.size()) + "]}}",
                             data));
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const WeightPart whole{
      .name = "m", .shape = {kRows, kColumns}, .rows = {0, kRows}, .columns = {0, kColumns}};
  WeightPart middle = whole;
  middle.rows = {100, 4000};
  middle.columns = {1000, 1500};
  const std::vector<WeightSpec> specs = {
      {.dtype = DType::kBF16, .rows = kRows, .columns = kColumns, .parts = {whole}},
      {.dtype = DType::kF32, .rows = 4000, .columns = 1500, .parts = {middle}},
  };
  const auto none = [](const std::string&) { return false; };
  CountingBackend backend;
  absl::StatusOr<Weights> weights = Weights::Load(*checkpoint, specs, none, GetParam(), backend);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(std::memcmp((*weights)[0].data, data.data(), data.size()), 0);
  int64_t wrong = 0;
  for (int64_t r = 0; r < 4000; ++r) {
    for (int64_t c = 0; c < 1500; ++c) {
      const BF16 stored{value((r + 100) * kColumns + c + 1000)};
      wrong += (*weights)[1].row<float>(r)[c] != ToFloat(stored);
    }
  }
  EXPECT_EQ(wrong, 0);
}

// A file that shrinks while it is read: the error names the first tensor affected, on every thread.
TEST_P(WeightsTest, NamesTheFirstTensorThatCannotBeRead) {
  const TempDir dir;
  const std::string data(40 << 20, 'x');
  const std::string path =
      dir.Write("model.safetensors",
                SafetensorsBytes(
                    R"({"a":{"dtype":"F32","shape":[5242880],"data_offsets":[0,20971520]},)"
                    R"("b":{"dtype":"F32","shape":[5242880],"data_offsets":[20971520,41943040]}})",
                    data));
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  std::filesystem::resize_file(path, 15 << 20);
  std::vector<WeightSpec> specs;
  for (const char* name : {"a", "b"}) {
    const WeightPart part{.name = name, .shape = {5242880}, .rows = {0, 5242880}};
    specs.push_back({.dtype = DType::kF32, .rows = 5242880, .parts = {part}});
  }
  const auto none = [](const std::string&) { return false; };
  CountingBackend backend;
  const absl::Status status = Weights::Load(*checkpoint, specs, none, GetParam(), backend).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor \"a\""));
}

}  // namespace
}  // namespace quire::testing

// The bodies of the targets; CHECK is the oracle.
#include "tests/fuzz/targets/model_file_targets.h"

#include <cmath>
#include <filesystem>
#include <string>

#include "engine/model/checkpoint/model_config.h"
#include "engine/model/checkpoint/safetensors.h"
#include "engine/values/sampling_params.h"
#include "kernels/check.h"
#include "tests/engine/model/temp_dir.h"

namespace quire {
namespace {

using testing::SafetensorsBytes;
using testing::TempDir;

constexpr size_t kDataBytes = 64;  // behind a header

const char kGoodConfig[] =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "float32",
        "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": false})";

// A file system may write a file to the disk that replaces another one in place: it is new.
void Put(const TempDir& dir, const std::string& name, std::string_view bytes) {
  std::filesystem::remove(dir.path() + "/" + name);
  dir.Write(name, std::string(bytes));
}

// Every fault is told: its file, and why.
void CheckRefusal(const absl::Status& status, std::string_view file) {
  CHECK(status.code() == absl::StatusCode::kInvalidArgument ||
        status.code() == absl::StatusCode::kNotFound);
  CHECK(std::string_view(status.message().data(), status.message().size()).find(file) !=
        std::string_view::npos);
}

void CheckDefaults(const GenerationDefaults& defaults) {
  if (defaults.temperature)
    CHECK(*defaults.temperature >= 0 && std::isfinite(*defaults.temperature));
  if (defaults.top_k) CHECK(*defaults.top_k >= 0);
  if (defaults.top_p) CHECK(*defaults.top_p > 0 && *defaults.top_p <= 1);
  if (defaults.min_p) CHECK(*defaults.min_p >= 0 && *defaults.min_p <= 1);
  if (defaults.repetition_penalty) {
    CHECK(*defaults.repetition_penalty > 0 && std::isfinite(*defaults.repetition_penalty));
  }
  if (defaults.max_new_tokens) CHECK(*defaults.max_new_tokens > 0);
}

void CheckConfig(const ModelConfig& config) {
  for (const int32_t size :
       {config.hidden_size, config.intermediate_size, config.num_layers, config.num_heads,
        config.num_kv_heads, config.head_dim, config.vocab_size}) {
    CHECK(size > 0);
  }
  CHECK(config.max_position >= 2 && config.longest_position >= config.max_position);
  CHECK_EQ(config.num_heads % config.num_kv_heads, 0);
  CHECK(config.rope.rotary_dim >= 0 && config.rope.rotary_dim <= config.head_dim);
  CHECK(std::isfinite(config.norm_eps));
  CHECK(config.eos_token_ids.size() <= SamplingParams::kMaxEosTokenIds);
  for (const int32_t id : config.eos_token_ids) CHECK(id >= 0 && id < config.vocab_size);
  CHECK_EQ(config.layer_is_sliding.size(), static_cast<size_t>(config.num_layers));
  CHECK_EQ(config.layer_rotation.size(), static_cast<size_t>(config.num_layers));
  CHECK(config.NumParameters() > 0);
  for (const int32_t ranks : config.TensorParallelSizes()) {
    CHECK(config.CheckTensorParallel(ranks).ok());
  }
  CheckDefaults(config.generation);
}

void CheckReads(const Checkpoint& checkpoint, const std::string& folder) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    CHECK(checkpoint.path(tensor).starts_with(folder + "/"));
    CHECK(checkpoint.path(tensor).find("..") == std::string::npos);
    std::string bytes(tensor.bytes, '\0');
    CHECK(checkpoint.Read(name, 0, bytes).ok());
  }
}

void OpenIn(const TempDir& dir) {
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir.path());
  if (checkpoint.ok()) {
    CheckReads(*checkpoint, dir.path());
  } else {
    CheckRefusal(checkpoint.status(), dir.path());
  }
}

}  // namespace

void FuzzConfigFile(std::string_view bytes) {
  static const TempDir& dir = *new TempDir;
  Put(dir, "config.json", bytes);
  const absl::StatusOr<ModelConfig> config = ModelConfig::Load(dir.path());
  if (config.ok()) {
    CheckConfig(*config);
  } else {
    CheckRefusal(config.status(), "config.json");
  }
}

void FuzzGenerationConfig(std::string_view bytes) {
  static const TempDir& dir = *new TempDir;
  static const std::string good = dir.Write("config.json", kGoodConfig);
  Put(dir, "generation_config.json", bytes);
  const absl::StatusOr<ModelConfig> config = ModelConfig::Load(dir.path());
  if (config.ok()) {
    CheckConfig(*config);
  } else {
    CheckRefusal(config.status(), "generation_config.json");
  }
}

void FuzzSafetensors(std::string_view bytes) {
  static const TempDir& dir = *new TempDir;
  Put(dir, "model.safetensors", bytes);
  OpenIn(dir);
}

void FuzzSafetensorsHeader(std::string_view bytes) {
  FuzzSafetensors(SafetensorsBytes(std::string(bytes), std::string(kDataBytes, 'x')));
}

void FuzzSafetensorsIndex(std::string_view bytes) {
  static const TempDir& dir = *new TempDir;
  static const bool shards = [] {
    for (const std::string name : {"a", "b"}) {
      const std::string header =
          R"({")" + name + R"(": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}})";
      dir.Write(name + ".safetensors", SafetensorsBytes(header, std::string(kDataBytes, 'x')));
    }
    return true;
  }();
  CHECK(shards);
  Put(dir, "model.safetensors.index.json", bytes);
  OpenIn(dir);
}

}  // namespace quire

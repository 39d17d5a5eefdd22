// The checkpoints under tests/testdata/models and what each proves.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace quire::testing {

struct TestCheckpoint {
  const char* name;        // the folder
  const char* models;      // published models of this form
  const char* particular;  // the facts in which it differs from llama
  int32_t head_dim = 128;  // of the published models, where it decides what a GPU can do
};

inline constexpr TestCheckpoint kCheckpoints[] = {
    {"llama", "Llama 2 and 3, DeepSeek LLM, Yi, SmolLM2, TinyLlama", "the plain decoder"},
    {"llama-8-heads", "", "two key/value heads on eight ranks"},
    {"llama-tied-bias", "", "biases, tied embeddings"},
    {"llama-llama3", "Llama 3.1, 3.2 and 3.3", "llama3 rotation"},
    {"llama-linear", "", "linear rotation"},
    {"llama-yarn", "", "YaRN rotation"},
    {"llama-bf16", "", "weights stored in bfloat16"},
    {"llama-f16", "", "weights stored in float16"},
    {"llama-sharded", "", "several files"},
    {"falcon3", "Falcon 3", "heads of 256", 256},
    {"mistral", "Mistral 7B, Nemo, Small 3.0", "a window in every layer"},
    {"mistral-small3", "Mistral Small 3.1 and 3.2 (text)",
     "a text part beside other towers, which stay unread"},
    {"qwen2", "Qwen 2 and 2.5", "biases of queries, keys and values"},
    {"qwen2-sliding", "", "windows in the last layers"},
    {"qwen3", "Qwen 3 (dense)", "norms of each query and key head"},
    {"mimo", "MiMo 7B", "extra prediction layers, which stay unread"},
    {"granite", "Granite 3", "scaled embeddings, residuals, scores and logits"},
    {"granite-bias", "", "the same with biases and heads of 80"},
    {"phi3", "Phi 3 medium, Phi 4", "fused matrices, a window"},
    {"phi3-short", "Phi 4 mini", "longrope up to the original length, partial rotation"},
    {"phi3-long", "Phi 3 mini, Phi 3.5 mini", "longrope past the original length", 96},
    {"olmo2", "OLMo 2", "norms after blocks, norms over all query and key heads"},
    {"smollm3", "SmolLM3", "layers without rotation"},
    {"seed-oss", "Seed-OSS", "biases, heads of 96"},
    {"internlm3", "InternLM 3", "biases everywhere"},
    {"exaone", "EXAONE 3 and 3.5", "other names of tensors and keys"},
    {"exaone4", "EXAONE 4 32B", "norms after blocks, windows, no rotation without a window"},
    {"exaone4-full", "EXAONE 4 1.2B", "the same without windows"},
    {"gemma2", "Gemma 2", "1 + w norms around blocks, GELU, soft caps, alternating windows", 256},
    {"gemma3", "Gemma 3 1B and 270M", "1 + w norms, GELU, windows with a base of their own", 256},
    {"gemma3-vision", "Gemma 3 4B, 12B and 27B (text)", "the same beside a vision tower", 256},
    {"glm", "GLM-4-9B (chat-hf)", "interleaved rotation of half a head"},
    {"glm4", "GLM-4-0414", "the same with norms around blocks"},
    {"stablelm", "StableLM 2 1.6B", "layer norms with biases, rotation of a quarter of a head", 64},
    {"stablelm-parallel", "StableLM 2 12B", "parallel blocks, layer norms of each head", 160},
    {"starcoder2", "StarCoder 2", "layer norms, GELU without a gate, a window"},
    {"cohere", "Command R, Aya", "parallel blocks, layer norms, interleaved rotation"},
    {"cohere-qk-norm", "Command R+", "the same with layer norms of each head"},
    {"cohere2", "Command R7B, Command A", "the same with windows, no rotation without a window"},
};

// The plain decoder in the shapes that kernels tell apart; they stand for no family.
inline constexpr TestCheckpoint kShapes[] = {
    {"shape-heads-80", "", "heads of 80", 80},
    {"shape-heads-96", "", "heads of 96", 96},
    {"shape-heads-112", "", "heads of 112", 112},
    {"shape-heads-192", "", "heads of 192", 192},
    {"shape-heads-256", "", "heads of 256", 256},
    {"shape-group-1", "", "a key/value head for each query head", 64},
    {"shape-group-3", "", "three query heads for each key/value head", 64},
    {"shape-group-5", "", "five query heads for each key/value head", 64},
    {"shape-group-24", "", "24 query heads for one key/value head", 64},
    {"shape-group-48", "", "48 query heads for one key/value head", 64},
    {"shape-odd-width", "", "an odd intermediate_size", 64},
    {"shape-odd-share", "", "an intermediate_size that is odd on each of two ranks", 64},
};

inline void PrintTo(const TestCheckpoint& checkpoint, std::ostream* out) {
  *out << checkpoint.name;
}

// Those that stand for published models.
inline std::vector<TestCheckpoint> FamilyCheckpoints() {
  std::vector<TestCheckpoint> families;
  for (const TestCheckpoint& checkpoint : kCheckpoints) {
    if (checkpoint.models[0] != '\0') families.push_back(checkpoint);
  }
  return families;
}

// The name of a test over one of them.
inline std::string TestNameOf(const TestCheckpoint& checkpoint) {
  std::string name = checkpoint.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
inline std::string NameOfCheckpoint(const ::testing::TestParamInfo<TestCheckpoint>& info) {
  return TestNameOf(info.param);
}

}  // namespace quire::testing

// The table of families; a field that a row leaves out has the default of Family.
#include "engine/model/checkpoint/families.h"

#include <array>

namespace quire {
namespace {

constexpr std::array kFamilies = {
    Family{
        .architecture = "LlamaForCausalLM",
        .model_type = "llama",
        .reads_attention_bias = true,
        .reads_mlp_bias = true,
        .default_max_position = 2048,
    },
    Family{
        .architecture = "MistralForCausalLM",
        .model_type = "mistral",
        .window = WindowRule::kAllLayers,
        .default_kv_heads = 8,
        .default_max_position = 131072,
    },
    Family{
        .architecture = "Qwen2ForCausalLM",
        .model_type = "qwen2",
        .window = WindowRule::kByLayer,
        .qkv_bias = true,
        .default_kv_heads = 32,
        .default_max_position = 32768,
    },
    Family{
        .architecture = "Qwen3ForCausalLM",
        .model_type = "qwen3",
        .window = WindowRule::kByLayer,
        .reads_attention_bias = true,
        .qk_norm = true,
        .default_head_dim = 128,
        .default_kv_heads = 32,
        .default_max_position = 32768,
    },
};

}  // namespace

std::span<const Family> Families() { return kFamilies; }

const Family* FindFamily(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

}  // namespace quire

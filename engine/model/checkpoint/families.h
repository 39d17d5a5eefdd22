// Families: the model families that can be served, one row for each architecture string. Reading a
// config.json and building the model follow from the row; a further family of the llama shape is a
// row and a checkpoint in tests/engine/model/make_checkpoints.py.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace quire {

// Which equation computes the model; model.cc builds each.
enum class ModelShape : uint8_t { kDecoder };

// Which layers attend to a sliding window: none, all, or those that config.json names.
enum class WindowRule : uint8_t { kNone, kAllLayers, kByLayer };

struct Family {
  std::string_view architecture;  // in config.json's "architectures"
  std::string_view model_type;
  ModelShape shape = ModelShape::kDecoder;
  WindowRule window = WindowRule::kNone;
  bool qkv_bias = false;              // always, whatever config.json says
  bool reads_attention_bias = false;  // "attention_bias" adds biases to q, k, v and o
  bool reads_mlp_bias = false;        // "mlp_bias" adds biases to gate, up and down
  bool qk_norm = false;
  // Values of absent keys: the defaults of the family's configuration class in transformers.
  int32_t default_head_dim = 0;  // 0: hidden_size / num_attention_heads
  int32_t default_kv_heads = 0;  // 0: num_attention_heads
  int32_t default_max_position = 0;
};

// In the order of messages. Lives as long as the program.
std::span<const Family> Families();
// The family of an architecture string, or null.
const Family* FindFamily(std::string_view architecture);

}  // namespace quire

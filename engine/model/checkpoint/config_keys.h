// ConfigKeys, ConfigDefaults, BiasRule: how families name and default the keys of config.json.
#pragma once

#include <cstdint>
#include <string_view>

namespace quire {

// Whether matrices have a bias: the value of config.json's key, or `fallback` without one.
struct BiasRule {
  const char* key = nullptr;  // null: always `fallback`
  bool fallback = false;
};

// The keys of config.json that families name differently.
struct ConfigKeys {
  const char* num_layers = "num_hidden_layers";
  const char* norm_eps = "rms_norm_eps";
  const char* activation = "hidden_act";
  const char* text = nullptr;  // the object that holds the keys of the decoder
};

// Values of absent keys: the defaults of the family's configuration class in transformers.
struct ConfigDefaults {
  int32_t num_heads = 0;   // 0: the key is required
  int32_t kv_heads = 0;    // 0: num_attention_heads
  int32_t head_dim = 0;    // 0: hidden_size / num_attention_heads
  int32_t vocab_size = 0;  // 0: the key is required
  int32_t max_position = 0;
  int32_t sliding_window = 0;  // 0: none
  int32_t window_pattern = 0;
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double rotary_factor = 1.0;
  bool tie_embeddings = false;
  std::string_view activation = "silu";
};

}  // namespace quire

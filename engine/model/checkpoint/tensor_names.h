// TensorNames: what a family calls the tensors of a decoder. Names of a layer follow
// "<root><layers><number>."; ".weight" and ".bias" follow every name. An empty name: the family has
// no such tensor.
#pragma once

#include <array>
#include <string_view>

namespace quire {

struct TensorNames {
  std::string_view root = "model.";
  std::string_view embedding = "embed_tokens";
  std::string_view layers = "layers.";
  std::string_view final_norm = "norm";
  std::string_view head = "lm_head";  // without the root
  // Both as other writers name them: of the decoder alone, as models that embed are stored.
  std::string_view other_root;
  std::string_view other_head = "lm_head";

  std::string_view input_norm = "input_layernorm";
  std::string_view qkv;  // q, k and v stacked, instead of the next three
  std::string_view q = "self_attn.q_proj";
  std::string_view k = "self_attn.k_proj";
  std::string_view v = "self_attn.v_proj";
  std::string_view q_norm = "self_attn.q_norm";
  std::string_view k_norm = "self_attn.k_norm";
  bool norm_each_head = false;  // "<q_norm><head>.weight" holds one head's weights
  std::string_view o = "self_attn.o_proj";
  std::string_view attention_output_norm;
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view gate_up;                 // gate and up stacked, instead of the next two
  std::string_view gate = "mlp.gate_proj";  // empty: the activation has no gate
  std::string_view up = "mlp.up_proj";
  std::string_view down = "mlp.down_proj";
  std::string_view mlp_output_norm;
  // Beginnings of names of tensors that the decoder does without: other towers, heads that guess
  // further tokens.
  std::array<std::string_view, 4> skipped;

  bool gated() const { return !gate.empty() || !gate_up.empty(); }
};

}  // namespace quire

// ModelConfig: a checkpoint's config.json and generation_config.json as a validated struct: the
// sizes of a decoder, and the facts in which it differs from llama's (decoder_facts.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/checkpoint/decoder_facts.h"
#include "engine/model/checkpoint/quantization.h"
#include "engine/model/checkpoint/tensor_names.h"
#include "kernels/dtype.h"

namespace quire {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kDynamic, kLongRope };

struct RopeConfig {
  RopeScaling scaling = RopeScaling::kNone;
  double theta = 10000.0;
  int32_t rotary_dim = 0;             // R: the first dimensions of a head, which rotate; 0: all
  bool interleaved = false;           // pairs (2i, 2i + 1) of the checkpoint, not (i, i + R / 2)
  double factor = 1.0;                // all but none
  double low_freq_factor = 1.0;       // llama3
  double high_freq_factor = 4.0;      // llama3
  int64_t original_max_position = 0;  // all but none and linear
  double beta_fast = 32.0;            // yarn
  double beta_slow = 1.0;             // yarn
  std::optional<double> attention_factor;  // yarn, longrope; default from factor
  double attn_factor = 1.0;                // yarn: of the default of attention_factor
  std::optional<double> mscale;            // yarn
  std::optional<double> mscale_all_dim;    // yarn
  bool truncate = true;                    // yarn
  std::vector<float> short_factor;         // longrope: [R / 2], for contexts up to the original
  std::vector<float> long_factor;          // longrope: [R / 2], for longer ones
};

// Defaults of the checkpoint's generation_config.json, each within the range of a request's field;
// absent fields stay unset.
struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<int32_t> max_new_tokens;
  bool do_sample = true;  // false: greedy unless the request says otherwise
};

// Keys that ModelConfig::Load passed over, by name; those of an inner object as "text_config.key".
struct UnreadKeys {
  std::vector<std::string> config;      // of config.json
  std::vector<std::string> generation;  // of generation_config.json
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", ...
  std::string model_type;    // "llama", ...
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t vocab_size = 0;                 // width of the logits
  int32_t max_position = 0;               // context length of the model, at least 2
  int32_t longest_position = 0;           // what a user may raise it to, perhaps more
  int32_t sliding_window = 0;             // 0: none
  std::vector<uint8_t> layer_is_sliding;  // [num_layers]
  float norm_eps = 1e-5f;
  bool tie_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  DecoderFacts facts;
  TensorNames names;  // of the family, under the root that the checkpoint has
  Quantization quantization;
  RopeConfig rope;
  RopeConfig local_rope;                 // of layers with Rotation::kLocal
  std::vector<Rotation> layer_rotation;  // [num_layers]
  DType stored_dtype = DType::kF32;      // torch_dtype of the checkpoint
  std::optional<int32_t> bos_token_id;
  // From generation_config, else config.json; at most SamplingParams::kMaxEosTokenIds.
  std::vector<int32_t> eos_token_ids;
  GenerationDefaults generation;

  // Reads DIR/config.json and DIR/generation_config.json (optional), and which root the names of
  // the tensors have, if there are any. An error has every fault, one a line, each with the file,
  // the key and the supported values. Sizes are bounded so that no product of them overflows int64.
  // `unread`, unless null, gets the keys that change nothing here.
  static absl::StatusOr<ModelConfig> Load(const std::string& dir, UnreadKeys* unread = nullptr);
  // OK if the model divides among `ranks`; otherwise names the sizes that it divides among. Where
  // there are fewer key/value heads than ranks, several ranks hold the same one.
  absl::Status CheckTensorParallel(int32_t ranks) const;
  // The numbers of ranks that it divides among, ascending.
  std::vector<int32_t> TensorParallelSizes() const;
  int64_t NumParameters() const;
};

}  // namespace quire

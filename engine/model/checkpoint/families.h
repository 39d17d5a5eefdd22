// Families: the model families that can be served, one row for each architecture string. Reading a
// config.json, the names of the weights, the operations and the memory plan follow from the row. A
// further family of the decoder is a row and a checkpoint in tests/engine/model/family_cases.py.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/model/checkpoint/config_keys.h"
#include "engine/model/checkpoint/decoder_facts.h"
#include "engine/model/checkpoint/tensor_names.h"

namespace quire {

class ConfigReader;
struct ModelConfig;

// Which equation computes the model; model.cc builds each.
enum class ModelShape : uint8_t { kDecoder };

// Which layers attend to a sliding window: none; all; those that config.json names, else the last
// ones; those that config.json names, else all but every n-th.
enum class WindowRule : uint8_t { kNone, kAllLayers, kByLayer, kPattern };

// Which layers rotate: all; those that "no_rope_layers" names; those with a window, if there are
// any; all, those with a window by the local base.
enum class RotationRule : uint8_t { kAll, kNamedLayers, kWindowLayers, kLocalWindows };

struct Family {
  std::string_view architecture;  // in config.json's "architectures"
  std::string_view model_type;
  std::string_view text_model_type;  // of the object ConfigKeys::text, if there is one
  ModelShape shape = ModelShape::kDecoder;
  WindowRule window = WindowRule::kNone;
  RotationRule rotation = RotationRule::kAll;
  bool partial_rotation = false;      // "partial_rotary_factor" may be below 1
  bool interleaved_rotation = false;  // pairs (2i, 2i + 1), not (i, i + R / 2)
  BiasRule qkv_bias, o_bias, mlp_bias;
  DecoderFacts facts;
  // Reads the keys that this family alone has into the facts; null: there are none.
  void (*read)(ConfigReader& in, ModelConfig& out) = nullptr;
  ConfigKeys keys;
  ConfigDefaults defaults;
  TensorNames names;
};

// In the order of messages. Lives as long as the program.
std::span<const Family> Families();
// The family of an architecture string, or null.
const Family* FindFamily(std::string_view architecture);

}  // namespace quire

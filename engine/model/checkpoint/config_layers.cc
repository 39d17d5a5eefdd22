// The rules of the families for windows and rotations, and the lists that config.json may give.
#include "engine/model/checkpoint/config_layers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr int64_t kMaxWindow = int64_t{1} << 27;

// "layer_types", if config.json has it; false without it, or after a fault.
bool ReadLayerTypes(ConfigReader& in, ModelConfig& out) {
  if (!in.Has("layer_types")) return false;
  const nlohmann::json& types = in.At("layer_types");
  if (!types.is_array() || types.size() != static_cast<size_t>(out.num_layers)) {
    in.Refuse("layer_types", absl::StrCat("a list of num_hidden_layers, ", out.num_layers));
    return false;
  }
  for (int32_t i = 0; i < out.num_layers; ++i) {
    out.layer_is_sliding[i] = types[i] == "sliding_attention";
    if (!out.layer_is_sliding[i] && types[i] != "full_attention") {
      in.Refuse("layer_types", "\"full_attention\" and \"sliding_attention\"");
      return false;
    }
    if (out.layer_is_sliding[i] && out.sliding_window == 0) {
      in.Refuse("layer_types",
                "\"sliding_attention\" only with \"use_sliding_window\" and a \"sliding_window\"");
      return false;
    }
  }
  return true;
}

// Every layer from max_window_layers on has the window, as in the Qwen families.
void SlideLastLayers(ConfigReader& in, ModelConfig& out) {
  const int64_t first = in.OptionalInt("max_window_layers", 0, kMaxWindow).value_or(28);
  for (int32_t i = 0; i < out.num_layers; ++i) {
    out.layer_is_sliding[i] = out.sliding_window > 0 && i >= first;
  }
}

// All layers but every n-th have the window.
void SlidePattern(ConfigReader& in, const Family& family, ModelConfig& out) {
  const int64_t pattern = in.OptionalInt("sliding_window_pattern", 1, kMaxWindow)
                              .value_or(family.defaults.window_pattern);
  for (int32_t i = 0; i < out.num_layers; ++i) {
    out.layer_is_sliding[i] = out.sliding_window > 0 && (i + 1) % pattern != 0;
  }
}

void RefuseWindows(ConfigReader& in) {
  if (!in.Has("layer_types")) return;
  for (const nlohmann::json& type : in.At("layer_types")) {
    if (type != "full_attention") in.Refuse("layer_types", "\"full_attention\" for this family");
  }
}

// Programs disagree whether "layer_types" or "sliding_window" counts where the layers are equal.
void RefuseFullLayers(ConfigReader& in) {
  if (!in.Has("layer_types")) return;
  for (const nlohmann::json& type : in.At("layer_types")) {
    if (type == "sliding_attention") continue;
    in.Refuse(
        "layer_types",
        "\"sliding_attention\" for every layer of this family, or null as \"sliding_window\"");
    return;
  }
}

void ReadWindow(ConfigReader& in, const Family& family, ModelConfig& out) {
  out.layer_is_sliding.assign(out.num_layers, 0);
  if (family.window == WindowRule::kNone) return RefuseWindows(in);
  // An absent key means the default of the configuration classes; null means no window.
  const bool by_layer = family.window == WindowRule::kByLayer;
  if (!by_layer || in.Bool("use_sliding_window", false)) {
    const bool is_null = in.Contains("sliding_window") && !in.Has("sliding_window");
    out.sliding_window =
        static_cast<int32_t>(in.OptionalInt("sliding_window", 1, kMaxWindow)
                                 .value_or(is_null ? 0 : family.defaults.sliding_window));
  }
  if (family.window == WindowRule::kAllLayers) {
    if (out.sliding_window > 0) RefuseFullLayers(in);
    out.layer_is_sliding.assign(out.num_layers, out.sliding_window > 0);
  } else if (const size_t faults = in.num_faults();
             !ReadLayerTypes(in, out) && in.num_faults() == faults) {
    by_layer ? SlideLastLayers(in, out) : SlidePattern(in, family, out);
  }
  if (std::ranges::find(out.layer_is_sliding, 1) == out.layer_is_sliding.end()) {
    out.sliding_window = 0;
  }
}

// "no_rope_layers": 1 for a layer that rotates; else every no_rope_layer_interval-th does not.
void ReadNamedRotations(ConfigReader& in, ModelConfig& out) {
  if (!in.Has("no_rope_layers")) {
    const int64_t interval = in.OptionalInt("no_rope_layer_interval", 1, kMaxWindow).value_or(4);
    for (int32_t i = 0; i < out.num_layers; ++i) {
      if ((i + 1) % interval == 0) out.layer_rotation[i] = Rotation::kNone;
    }
    return;
  }
  const size_t faults = in.num_faults();
  const std::vector<int64_t> rotates = in.IntList("no_rope_layers", 0, 1);
  if (in.num_faults() > faults) return;
  if (rotates.size() != static_cast<size_t>(out.num_layers)) {
    in.Refuse("no_rope_layers", absl::StrCat("a list of num_hidden_layers, ", out.num_layers));
    return;
  }
  for (int32_t i = 0; i < out.num_layers; ++i) {
    if (rotates[i] == 0) out.layer_rotation[i] = Rotation::kNone;
  }
}

}  // namespace

void ReadLayers(ConfigReader& in, const Family& family, ModelConfig& out) {
  const size_t faults = in.num_faults();
  ReadWindow(in, family, out);
  out.layer_rotation.assign(out.num_layers, Rotation::kGlobal);
  if (in.num_faults() > faults) return;
  if (family.rotation == RotationRule::kNamedLayers) ReadNamedRotations(in, out);
  for (int32_t i = 0; i < out.num_layers; ++i) {
    const bool sliding = out.layer_is_sliding[i] != 0;
    if (family.rotation == RotationRule::kWindowLayers && out.sliding_window > 0 && !sliding) {
      out.layer_rotation[i] = Rotation::kNone;
    }
    if (family.rotation == RotationRule::kLocalWindows && sliding) {
      out.layer_rotation[i] = Rotation::kLocal;
    }
  }
}

}  // namespace quire

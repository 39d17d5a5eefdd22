// ReadLayers: which layers of a config.json attend to a window, and how each rotates.
#pragma once

#include "engine/model/checkpoint/families.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/config/config_reader.h"

namespace quire {

// Sets sliding_window, layer_is_sliding and layer_rotation; num_layers is known. Faults go to `in`.
void ReadLayers(ConfigReader& in, const Family& family, ModelConfig& out);

}  // namespace quire

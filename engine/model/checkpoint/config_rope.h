// ReadRope: the rotary positions of a config.json, in the forms of transformers 4 and 5.
#pragma once

#include "engine/model/checkpoint/families.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/config/config_reader.h"

namespace quire {

// Sets rope and local_rope, and raises max_position where the scaling names the context before it;
// head_dim and max_position are known. Faults go to `in`.
void ReadRope(ConfigReader& in, const Family& family, ModelConfig& out);

}  // namespace quire

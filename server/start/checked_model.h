// CheckedModel: what the sections of --check have read so far, for the sections after them.
#pragma once

#include <optional>

#include "engine/engine_setup.h"
#include "engine/model/checkpoint/model_config.h"
#include "server/config/server_config.h"

namespace quire {

struct CheckedModel {
  Settings settings;                  // resolved
  std::optional<ModelConfig> config;  // none: config.json is refused
  UnreadKeys unread;
  EngineConfig planned;              // settings.engine, without weights of another format
  std::optional<EngineSetup> setup;  // of `planned`; none: there is no plan
};

}  // namespace quire

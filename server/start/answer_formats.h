// FindAnswerFormats: how the served model marks its reasoning and writes calls of tools.
#pragma once

#include "server/call/serving_model.h"
#include "server/config/server_config.h"

namespace quire {

// Sets the formats of a model whose chat templates are loaded: those that --reasoning-parser and
// --tool-call-parser name or, with auto, those that the templates show. Logs them.
void FindAnswerFormats(const ServerConfig& config, ServingModel* model);

}  // namespace quire

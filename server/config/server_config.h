// ServerConfig: every setting of the process around the engine, as values. Validate rejects and
// never repairs.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/engine_config.h"
#include "server/call/front_options.h"

namespace quire {

struct ServerConfig {
  std::string served_model_name;  // empty: the base name of the model's directory
  FrontOptions front;
  std::string metrics_host = "127.0.0.1";
  int32_t metrics_port = 9464;      // 0: any free one
  std::string log_format = "text";  // text, json
  std::string log_level = "info";   // debug, info, warning, error
  double shutdown_timeout_seconds = 60;
  double drain_delay_seconds = 0;
  double hung_after_seconds = 10;

  // OK, or INVALID_ARGUMENT listing every fault between settings, one a line. Single values are
  // bounded by the table in config_flags.cc.
  absl::Status Validate() const;
};

// What one process is started with.
struct Settings {
  EngineConfig engine;
  ServerConfig server;
  bool dry_run = false;
};

// With what 0 and an empty text stand for in the server's part, as PlanEngine does for the
// engine's: the threads for text and the model's name. `settings` name a model directory.
Settings ResolveServer(Settings settings);

}  // namespace quire

// ServerConfig: every setting of the process around the engine, as values. The table in
// config_table.cc bounds each value; Validate checks them together. It rejects and never repairs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine_config.h"
#include "server/call/front_options.h"

namespace quire {

struct ServerConfig {
  // Names that requests may use; answers and metrics carry the first, as vLLM's do. Empty: the base
  // name of the model's directory.
  std::vector<std::string> served_model_names;
  std::string tokenizer;                  // directory; empty: the model's
  bool skip_tokenizer_init = false;       // token ids only
  std::string chat_template;              // file; empty: as the directory of the tokenizer has it
  std::string reasoning_parser = "auto";  // auto, none, or of reasoning_format.cc
  std::string tool_call_parser = "auto";  // auto, none, or of call_format.cc
  std::string logit_processors;           // file of those that requests may name; empty: none
  FrontOptions front;
  std::string metrics_host = "127.0.0.1";
  int32_t metrics_port = 9464;      // 0: any free one
  std::string log_format = "text";  // text, json
  std::string log_level = "info";   // debug, info, warning, error
  double shutdown_timeout_seconds = 60;
  double drain_delay_seconds = 0;
  double hung_after_seconds = 10;
  std::string api_keys;     // file of digests of keys; empty: the server asks for none
  std::string session_dir;  // keeps sessions beyond the server's life; empty: none
  int64_t session_dir_size = 100'000'000'000;  // bytes
  int64_t job_size = 10'000'000'000;           // bytes, of all files of jobs
  std::string otlp_endpoint;  // of a collector for traces; empty: no call is traced
  std::string otlp_service_name = "quire";
  double trace_sample_ratio = 1;  // of traces that begin here

  // True if other machines can reach the gRPC address.
  bool BeyondThisMachine() const;
  // A warning for the log: other machines can read requests, or use the server without a key or a
  // certificate. Empty if they cannot.
  std::string Exposure() const;
  // OK, or INVALID_ARGUMENT listing every fault between settings, one a line.
  absl::Status Validate() const;
};

// The directory of tokenizer and chat template; empty: the server has none.
struct Settings;
std::string TextDirectory(const Settings& settings);

// The reason why traces cannot go to this endpoint, as a sentence; empty if they can, and for an
// empty one.
std::string EndpointFault(const std::string& endpoint);

// The settings that one process starts with.
struct Settings {
  EngineConfig engine;
  ServerConfig server;
  bool check = false;
  bool dry_run = false;
};

// Fills in the server's settings that are chosen when 0 or empty: the threads for text and the
// model's name. PlanEngine does so for the engine's. `settings` name a model directory.
Settings ResolveServer(Settings settings);

}  // namespace quire

// Registry: which architectures can be served, and what builds each. To add one, write its Model
// and a line in registry.cc; model_config.cc reads its config.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model.h"

namespace quire {

// What LoadModel is asked for, on one rank.
struct ModelSource {
  const std::string& dir;
  const ModelConfig& config;
  TpInfo tp;
  const ModelOptions& options;
};

struct Architecture {
  const char* name;  // in config.json's "architectures"
  absl::StatusOr<std::unique_ptr<Model>> (*load)(const ModelSource& source, Backend& backend);
  ModelMemory (*plan)(const ModelConfig& config, TpInfo tp, const ModelOptions& options);
};

// The architecture of that name, or null.
const Architecture* FindArchitecture(const std::string& name);

}  // namespace quire

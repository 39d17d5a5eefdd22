// Tells faults of the model, of the settings and of the device apart.
#include "server/start/plan_serving.h"

#include <memory>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/engine_workers.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/checkpoint/model_files.h"

namespace quire {
namespace {

absl::StatusOr<EngineSetup> Plan(const EngineConfig& config) {
  ASSIGN_OR_RETURN(const auto workers,
                   EngineWorkers::Find(config, kGpuDriver, EngineWorkers::Reach::kThisNode));
  ASSIGN_OR_RETURN(EngineSetup plan, PlanEngine(workers->config(), workers->device()));
  plan.device_reason = workers->device_reason();
  return plan;
}

bool ModelIsFine(const EngineConfig& config) {
  const bool loads_files = config.load_format != "dummy";
  return (!loads_files || CheckWeightsFormat(config.model).ok()) &&
         ModelConfig::Load(config.model).ok();
}

}  // namespace

ExitCode DeviceOr(ExitCode otherwise, const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kInternal: return ExitCode::kDevice;
    default: return otherwise;
  }
}

StartError PlanError(const EngineConfig& config, const absl::Status& status) {
  return {ModelIsFine(config) ? DeviceOr(ExitCode::kBadConfig, status) : ExitCode::kModel, status};
}

std::optional<EngineSetup> PlanServing(const EngineConfig& config, StartError* error) {
  absl::StatusOr<EngineSetup> setup = Plan(config);
  if (setup.ok()) return *std::move(setup);
  *error = PlanError(config, setup.status());
  return std::nullopt;
}

}  // namespace quire

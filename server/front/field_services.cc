// One row for each service.
#include "server/front/field_services.h"

#include "server/wire/kserve/kserve_services.h"
#include "server/wire/openengine/openengine_services.h"
#include "server/wire/vllm/vllm_services.h"
#include "server/wire/vllm_engine/vllm_service.h"

namespace quire {
namespace {

struct Row {
  const char* name;
  std::unique_ptr<RawService> (*make)(const WireResources& resources);
};

constexpr Row kRows[] = {
    {"vllm.Inference", MakeVllmInference},
    {"vllm.Control", MakeVllmControl},
    {"openengine.v1.Inference", MakeOpenEngineInference},
    {"openengine.v1.Control", MakeOpenEngineControl},
    {"inference.GRPCInferenceService", MakeKserve},
    {"vllm.grpc.engine.VllmEngine", MakeVllmEngine},
};

}  // namespace

std::vector<std::string> FieldServiceNames() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

std::vector<FieldService> MakeFieldServices(const WireResources& resources) {
  std::vector<FieldService> services;
  for (const Row& row : kRows) services.push_back({row.name, row.make(resources)});
  return services;
}

}  // namespace quire

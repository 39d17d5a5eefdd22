// The published health adds what the figures of one moment do not show: that no step has ended for
// too long.
#include "server/wire/engine_trouble.h"

namespace quire {

std::string EngineTrouble(const WireResources& resources) {
  const EngineStats stats = resources.generate.engine.Stats();
  if (!stats.fault.empty()) return "the engine has failed: " + stats.fault;
  if (stats.recovering) return "the workers died and are being replaced";
  return resources.healthy ? "" : "the engine makes no progress";
}

}  // namespace quire

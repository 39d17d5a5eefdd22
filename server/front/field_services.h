// FieldServices: all services of other projects' protocols, for the listener.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/call/raw_service.h"
#include "server/wire/wire_resources.h"

namespace quire {

struct FieldService {
  const char* name;  // "package.Service", for reflection and health
  std::unique_ptr<RawService> service;
};

// Names of the services that MakeFieldServices makes.
std::vector<std::string> FieldServiceNames();

// What `resources` refers to outlives the services.
std::vector<FieldService> MakeFieldServices(const WireResources& resources);

}  // namespace quire

// quire.v1.Sessions. Each call is an operation that the scheduler thread runs between two steps
// (Engine::Run); other threads decode its request and encode its answer.
#pragma once

#include <memory>

#include "server/call/raw_service.h"
#include "server/session/session_resources.h"

namespace quire {

// `resources` outlive the service.
std::unique_ptr<RawService> MakeSessionsService(SessionResources* resources);

}  // namespace quire

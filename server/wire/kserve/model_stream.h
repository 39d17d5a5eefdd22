// ModelStreamInfer: one call that carries any number of requests at a time. Each is a stream of its
// own; their responses share the call's writer.
#pragma once

#include <memory>

#include "server/call/raw_service.h"
#include "server/generate/generate_resources.h"
#include "server/wire/kserve/kserve_format.h"

namespace quire {

// A handler for RawService; the reactors delete themselves. `resources` outlive every call.
RawService::Bidi ModelStream(const GenerateResources* resources,
                             std::shared_ptr<InferCounters> counters);

}  // namespace quire

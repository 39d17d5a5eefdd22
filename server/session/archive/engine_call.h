// RunAndWait: an operation on the sessions as a call that blocks, for the threads of the session
// directory.
#pragma once

#include <atomic>
#include <optional>

#include "engine/engine.h"
#include "engine/values/session_operation.h"

namespace quire {

// nullopt if `stopping` became true before the answer came. Not for a thread of the engine or of a
// call.
std::optional<SessionAnswer> RunAndWait(Engine& engine, SessionOperation operation,
                                        const std::atomic<bool>& stopping);

}  // namespace quire

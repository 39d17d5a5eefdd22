// Runs the operations of session calls on the scheduler thread and brings their answers back.
#pragma once

#include "engine/values/session_operation.h"
#include "server/call/stream_host.h"

namespace quire {

// Runs `operation` on the scheduler thread, then `done` with its answer on the session thread.
// `done` is dropped without a call when the server ends first. Any thread; never blocks.
void RunOperation(StreamHost* host, SessionOperation operation, SessionCompletion done);

}  // namespace quire

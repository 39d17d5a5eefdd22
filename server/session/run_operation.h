// Runs the operations of session calls on the scheduler thread and brings their answers back.
#pragma once

#include "engine/values/session_operation.h"

namespace quire {

class Engine;
class SerialThread;

// Runs `operation` on the scheduler thread, then `done` with its answer on `session_thread`.
// `done` is dropped without a call when the server ends first. Any thread; never blocks.
void RunOperation(Engine& engine, SerialThread& session_thread, SessionOperation operation,
                  SessionCompletion done);

}  // namespace quire

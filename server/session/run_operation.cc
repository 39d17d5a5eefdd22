// The one hand-over from the scheduler thread to the session thread.
#include "server/session/run_operation.h"

#include <utility>

#include "engine/engine.h"
#include "server/call/serial_thread.h"

namespace quire {

void RunOperation(Engine& engine, SerialThread& session_thread, SessionOperation operation,
                  SessionCompletion done) {
  engine.Run(std::move(operation),
             [&session_thread, done = std::move(done)](SessionAnswer answer) mutable {
               session_thread.Post([done = std::move(done), answer = std::move(answer)]() mutable {
                 done(std::move(answer));
               });
             });
}

}  // namespace quire

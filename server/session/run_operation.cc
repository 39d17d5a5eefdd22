// The one hand-over from the scheduler thread to the session thread.
#include "server/session/run_operation.h"

#include <utility>

#include "server/call/serial_thread.h"

namespace quire {

void RunOperation(StreamHost* host, SessionOperation operation, SessionCompletion done) {
  host->engine->Run(std::move(operation), [thread = host->session_thread,
                                           done = std::move(done)](SessionAnswer answer) mutable {
    thread->Post([done = std::move(done), answer = std::move(answer)]() mutable {
      done(std::move(answer));
    });
  });
}

}  // namespace quire

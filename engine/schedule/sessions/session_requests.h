// Runs clients' operations on sessions (all but turns), one at a time, between two steps.
#pragma once

#include <cstdint>

#include "engine/schedule/sessions/session_store.h"
#include "engine/values/session_operation.h"

namespace quire {

SessionAnswer RunSessionOperation(SessionStore& sessions, SessionOperation operation,
                                  int64_t now_ns);

}  // namespace quire

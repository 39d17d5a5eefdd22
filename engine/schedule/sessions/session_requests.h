// Runs what clients ask of sessions beside turns, one operation at a time, between two steps.
#pragma once

#include <cstdint>

#include "engine/schedule/sessions/session_store.h"
#include "engine/values/session_operation.h"

namespace quire {

SessionAnswer RunSessionOperation(SessionStore& sessions, SessionOperation operation,
                                  int64_t now_ns);

}  // namespace quire

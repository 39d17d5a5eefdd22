// TurnArchive: what a generating call asks of the directory that keeps sessions beyond the life of
// the server. Any thread; no call blocks.
#pragma once

#include <functional>

#include "engine/values/session_operation.h"

namespace quire {

class TurnArchive {
 public:
  virtual ~TurnArchive() = default;
  // Calls `submit` once, when the turn may be sent to the engine: at once, or when KV of its
  // session has come back from the directory, or when that takes too long.
  virtual void BeforeTurn(TenantId tenant, const SessionName& name,
                          std::function<void()> submit) = 0;
  // The engine has appended a turn to the session. Calls `done` once, when the session's new tokens
  // are in the directory, or when that takes too long. `cut`: the turn ended with a stop string, so
  // that a cut may follow it.
  virtual void AfterTurn(TenantId tenant, const SessionName& name, bool cut,
                         std::function<void()> done) = 0;
  // From now on `observer` hears of each change too. It outlives the engine.
  virtual void Tell(SessionObserver* observer) = 0;
};

}  // namespace quire

// Names of states and outcomes, as clients see them.
#include "engine/values/session.h"

namespace quire {

const char* Name(SessionState state) {
  switch (state) {
    case SessionState::kActive: return "ACTIVE";
    case SessionState::kResidentIdle: return "RESIDENT_IDLE";
    case SessionState::kOffloading: return "OFFLOADING";
    case SessionState::kHost: return "HOST";
    case SessionState::kRestoring: return "RESTORING";
    case SessionState::kDropped: return "DROPPED";
    case SessionState::kClosed: return "CLOSED";
  }
  return "UNKNOWN";
}

const char* Name(Residency::Outcome outcome) {
  switch (outcome) {
    case Residency::Outcome::kNone: return "NONE";
    case Residency::Outcome::kDevice: return "DEVICE";
    case Residency::Outcome::kRestored: return "RESTORED";
    case Residency::Outcome::kPartial: return "PARTIAL";
    case Residency::Outcome::kRecomputed: return "RECOMPUTED";
  }
  return "UNKNOWN";
}

}  // namespace quire

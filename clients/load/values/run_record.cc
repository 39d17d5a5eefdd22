// Names of outcomes and endings, as reports spell them.
#include "clients/load/values/run_record.h"

namespace quire::load {

const char* Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPending: return "pending";
    case Outcome::kOk: return "ok";
    case Outcome::kCancelled: return "cancelled";
    case Outcome::kFailed: return "failed";
    case Outcome::kIncomplete: return "incomplete";
  }
  return "unknown";
}

const char* Name(RunEnd end) {
  switch (end) {
    case RunEnd::kCompleted: return "completed";
    case RunEnd::kInterrupted: return "interrupted";
    case RunEnd::kServerLost: return "server lost";
    case RunEnd::kTimeLimit: return "time limit";
  }
  return "unknown";
}

}  // namespace quire::load

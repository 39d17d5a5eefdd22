// Names of owners, as the status page and Control.GetMemory show them.
#include "engine/values/kv_map.h"

namespace quire {

const char* Name(BlockOwner owner) {
  switch (owner) {
    case BlockOwner::kFree: return "free";
    case BlockOwner::kCached: return "cached";
    case BlockOwner::kSession: return "session";
    case BlockOwner::kRestoring: return "restoring";
    case BlockOwner::kRunning: return "running";
    case BlockOwner::kCopying: return "copying";
  }
  return "";
}

const char* Name(PageOwner owner) {
  switch (owner) {
    case PageOwner::kUnused: return "unused";
    case PageOwner::kNotReady: return "not_ready";
    case PageOwner::kBacked: return "backed";
    case PageOwner::kCached: return "cached";
    case PageOwner::kSession: return "session";
    case PageOwner::kCopying: return "copying";
  }
  return "";
}

}  // namespace quire

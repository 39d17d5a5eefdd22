// KeyWatch: looks at the key file once a second, on a thread of its own, and gives each good change
// to the door. A bad file changes nothing, and is said.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "server/identity/key_door.h"
#include "server/metrics/auth_metrics.h"
#include "server/watch/watch_thread.h"

namespace quire {

class KeyWatch {
 public:
  // `taken` gets each new table, on the watch's thread. All outlive the watch, which looks until it
  // is destroyed. The door has a table of the file, perhaps an older one than the file is now.
  KeyWatch(std::string path, KeyDoor* door, AuthMetrics* metrics,
           std::function<void(const KeyTable&)> taken);

 private:
  void LookOnce();

  const std::string path_;
  KeyDoor& door_;
  AuthMetrics& metrics_;
  const std::function<void(const KeyTable&)> taken_;
  // The thread's: the state of the file that was last acted on, and the last bad one.
  std::string seen_;
  std::string bad_;
  std::optional<WatchThread> thread_;  // set when the constructor has told the beginning
};

}  // namespace quire

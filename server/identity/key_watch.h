// KeyWatch: looks at the key file once a second, on a thread of its own, and gives each good change
// to the door. A bad file changes nothing, and is said.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "server/identity/key_door.h"
#include "server/metrics/auth_metrics.h"

namespace quire {

class KeyWatch {
 public:
  // `taken` gets each new table, on the watch's thread. All outlive the watch, which looks until it
  // is destroyed. The door has the file's table as it is now.
  KeyWatch(std::string path, KeyDoor* door, AuthMetrics* metrics,
           std::function<void(const KeyTable&)> taken);
  ~KeyWatch();
  KeyWatch(const KeyWatch&) = delete;
  KeyWatch& operator=(const KeyWatch&) = delete;

 private:
  void Run();
  void LookOnce();

  const std::string path_;
  KeyDoor& door_;
  AuthMetrics& metrics_;
  const std::function<void(const KeyTable&)> taken_;
  // The thread's: the state of the file that was last acted on, and the last bad one.
  std::string seen_;
  std::string bad_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  std::thread thread_;     // last, because it uses the members above
};

}  // namespace quire

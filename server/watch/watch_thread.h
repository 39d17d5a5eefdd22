// WatchThread: calls a function once a second, for files that may change while the server runs.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace quire {

class WatchThread {
 public:
  // `look` runs on the watch's own thread, first a second from now and then a second after the end
  // of the last call. It may read files.
  explicit WatchThread(std::function<void()> look);
  // Waits for a call that is under way. `look` is not called any more.
  ~WatchThread();
  WatchThread(const WatchThread&) = delete;
  WatchThread& operator=(const WatchThread&) = delete;

 private:
  void Run();

  const std::function<void()> look_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  std::thread thread_;     // last, because it uses the members above
};

}  // namespace quire

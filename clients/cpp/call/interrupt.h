// Interrupt: carries ctrl-C from the thread that waits for signals to the RPC in progress.
#pragma once

#include <functional>
#include <mutex>

namespace quire::cli {

class Interrupt {
 public:
  // Registers the function that ends the RPC. Each Raise runs it, on the thread of the Raise; after
  // an earlier Raise, Arm runs it at once. It must not call this object. Any thread, as all below.
  void Arm(std::function<void()> cancel);
  // After this returns, the armed function is not running and will not run again.
  void Disarm();
  // Not from a signal handler. Returns false if no function is armed.
  bool Raise();
  bool raised() const;
  // Clears the raised flag, so that the next RPC can run. Call it only between RPCs.
  void Reset();
  // True: the process goes on after a second ctrl-C, or one with no function armed. The signal
  // thread in main.cc acts on it; this class only stores it.
  void set_survivable(bool survivable);
  bool survivable() const;

 private:
  mutable std::mutex mutex_;
  std::function<void()> cancel_;  // guarded by mutex_
  bool raised_ = false;           // guarded by mutex_
  bool survivable_ = false;       // guarded by mutex_
};

}  // namespace quire::cli

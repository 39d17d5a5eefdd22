// Interrupt: carries ctrl-C from the thread that waits for signals to the call that is running.
#pragma once

#include <functional>
#include <mutex>

namespace quire::cli {

class Interrupt {
 public:
  // Runs `cancel` at the first Raise, or at once if that has happened already. Until Disarm.
  void Arm(std::function<void()> cancel);
  // After this returns, the armed function is not running and will not run again.
  void Disarm();
  // Any thread, but not a signal handler. False when nothing was armed to react.
  bool Raise();
  bool raised() const;
  // Forgets the Raise that ended a call, so that the next call runs. Between calls.
  void Reset();
  // Whether the process goes on when ctrl-C comes a second time, or with nothing armed.
  void set_survivable(bool survivable);
  bool survivable() const;

 private:
  mutable std::mutex mutex_;
  std::function<void()> cancel_;  // guarded by mutex_
  bool raised_ = false;           // guarded by mutex_
  bool survivable_ = false;       // guarded by mutex_
};

}  // namespace quire::cli

// The armed function runs under the mutex, so that Disarm can promise that it has ended.
#include "clients/cpp/call/interrupt.h"

#include <utility>

namespace quire::cli {

void Interrupt::Arm(std::function<void()> cancel) {
  std::lock_guard<std::mutex> lock(mutex_);
  cancel_ = std::move(cancel);
  if (raised_) cancel_();
}

void Interrupt::Disarm() {
  std::lock_guard<std::mutex> lock(mutex_);
  cancel_ = nullptr;
}

bool Interrupt::Raise() {
  std::lock_guard<std::mutex> lock(mutex_);
  raised_ = true;
  if (!cancel_) return false;
  cancel_();
  return true;
}

bool Interrupt::raised() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return raised_;
}

void Interrupt::Reset() {
  std::lock_guard<std::mutex> lock(mutex_);
  raised_ = false;
}

void Interrupt::set_survivable(bool survivable) {
  std::lock_guard<std::mutex> lock(mutex_);
  survivable_ = survivable;
}

bool Interrupt::survivable() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return survivable_;
}

}  // namespace quire::cli

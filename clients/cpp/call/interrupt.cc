// The armed function runs under the mutex: that is what makes Disarm a promise.
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

}  // namespace quire::cli

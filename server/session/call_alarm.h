// CallAlarm: the one wait of a streaming call at a time; SessionStream::SetAlarm begins it. The
// session thread's.
//
// Each wait has an alarm of the library of its own: an alarm that was cancelled calls its function
// later, from another thread, so it must not be set again meanwhile.
#pragma once

#include <grpcpp/alarm.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace quire {

class CallAlarm {
 public:
  using Time = std::chrono::system_clock::time_point;

  // Ends the wait before, if there is one, and begins one until `due`. `done` is called once, from
  // a thread of the library: with true at that time, with false when the wait was ended.
  void Set(Time due, std::function<void(bool in_time)> done) {
    Cancel();
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(due, std::move(done));
  }
  // Ends the wait.
  void Cancel() {
    ++waits_;
    alarm_.reset();
  }
  // A number that changes when a wait begins or ends.
  uint64_t waits() const { return waits_; }

 private:
  std::unique_ptr<grpc::Alarm> alarm_;
  uint64_t waits_ = 0;
};

}  // namespace quire

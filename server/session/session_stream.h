// SessionStream: the common part of the streaming calls of the Sessions service. Only the session
// thread touches a call's state: the library's callbacks, the scheduler thread and timers post to
// it. So there is no lock, and the library is never called from two threads at once.
//
// Owned by shared_ptr: by the library from Begin to Done, and by every job on its way to the call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "engine/values/request.h"
#include "server/call/connection_table.h"
#include "server/call/raw_service.h"
#include "server/call/serial_thread.h"
#include "server/session/call_alarm.h"
#include "server/session/run_operation.h"
#include "server/session/session_resources.h"

namespace quire {

class SessionStream : public std::enable_shared_from_this<SessionStream> {
 public:
  // `resources` outlive the call; `method` is a literal.
  SessionStream(SessionResources* resources, const IncomingCall& call, const char* method);
  virtual ~SessionStream() = default;
  SessionStream(const SessionStream&) = delete;
  SessionStream& operator=(const SessionStream&) = delete;

 protected:
  // The library's thread that made the call: the library holds it from now on.
  void Begin();
  // From OnDone.
  void Done();
  // Runs `job` on the session thread, and holds the call until then. Any thread. Callbacks of the
  // library read published_ to see the constructor's writes: neither the library's documentation
  // nor the thread sanitizer shows an order of its own.
  template <typename Job>
  void Post(Job job) {
    SessionStream* const call = published_.load(std::memory_order_acquire);
    call->resources_->thread.Post(
        [self = call->shared_from_this(), job = std::move(job)]() mutable { job(); });
  }
  // Runs an operation on the sessions, then `done` with its answer on the session thread; holds the
  // call until then.
  template <typename Function>
  void Run(SessionOperation operation, Function done) {
    RunOperation(resources_->engine, resources_->thread, std::move(operation),
                 [self = shared_from_this(), done = std::move(done)](SessionAnswer answer) mutable {
                   done(std::move(answer));
                 });
  }

  // --- The session thread's.
  // Runs `job` on the session thread after that time, unless `alarm`, a member of the call, is
  // cancelled before; holds the call until then.
  template <typename Job>
  void SetAlarm(CallAlarm& alarm, double seconds, Job job) {
    const auto due = std::chrono::system_clock::now() +
                     std::chrono::duration_cast<std::chrono::system_clock::duration>(
                         std::chrono::duration<double>(seconds));
    // The alarm keeps its function until it is destroyed itself, with the call. So the function
    // gives up its hold of the call when the alarm goes off or is cancelled. An alarm that went off
    // just before it was cancelled has posted already, and then finds another wait.
    const uint64_t wait = alarm.waits() + 1;
    alarm.Set(due, [this, &alarm, wait, self = shared_from_this(), job](bool in_time) mutable {
      const auto held = std::move(self);
      if (!in_time) return;
      Post([&alarm, wait, job]() mutable {
        if (alarm.waits() == wait) job();
      });
    });
  }
  // Ends the call unless it has ended. The call releases all it holds before its client can know of
  // the end.
  void End(const absl::Status& status);
  // The same, when the transport finishes in another way than by its status alone.
  bool BeginEnd(const absl::Status& status);
  bool ended() const { return ended_; }

  SessionResources* const resources_;
  const CallerRef caller_;
  const TenantId tenant_;  // the caller's

 private:
  virtual void ReleaseAll() = 0;
  virtual void FinishWith(const absl::Status& status) = 0;

  const char* const method_;
  const int64_t opened_ns_;
  const OpenCall call_;
  std::atomic<SessionStream*> published_{nullptr};
  // The session thread's.
  std::shared_ptr<SessionStream> self_;
  bool ended_ = false;
};

}  // namespace quire

// SessionCalls: what a run asks of the server's sessions beside their turns: forks, and to close
// what is not gone on with, so that a run leaves no conversations behind.
//
// Thread-safe; no call blocks but Wait. Each ends within ten seconds.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "quire/v1/sessions.grpc.pb.h"

namespace quire::load {

struct SessionFork {
  std::string from, to;
  int32_t position = 0;
};

class SessionCalls {
 public:
  explicit SessionCalls(std::unique_ptr<v1::Sessions::Stub> stub);
  ~SessionCalls();  // waits

  // `done` runs on one of gRPC's threads, whatever the answer: a fork that failed shows in its
  // first turn.
  void Fork(const SessionFork& fork, std::function<void()> done);
  // A failure is nobody's business: the session's lease will end.
  void Close(const std::string& session);
  // Until all have been answered.
  void Wait();

 private:
  void Begin();
  void End();

  const std::unique_ptr<v1::Sessions::Stub> stub_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t in_flight_ = 0;  // guarded by mutex_
};

}  // namespace quire::load

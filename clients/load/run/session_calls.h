// SessionCalls: a run's calls of the session service beside the turns. It forks sessions and closes
// sessions that have no further turn, so that no conversation outlives the run.
//
// Thread-safe; no call blocks but Wait. Each ends within ten seconds.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "clients/connect/endpoint.h"
#include "quire/v1/sessions.grpc.pb.h"

namespace quire::load {

struct SessionFork {
  std::string from, to;
  int32_t position = 0;
};

class SessionCalls {
 public:
  // `endpoint` outlives this; it has the key and headers of each call.
  SessionCalls(std::unique_ptr<v1::Sessions::Stub> stub, const connect::Endpoint& endpoint);
  ~SessionCalls();  // waits

  // `done` runs on one of gRPC's threads, also if the fork failed: its first turn then fails.
  void Fork(const SessionFork& fork, std::function<void()> done);
  // A failure is ignored: the session's lease ends by itself.
  void Close(const std::string& session);
  // Blocks until all calls have been answered.
  void Wait();

 private:
  void Begin();
  void End();

  const std::unique_ptr<v1::Sessions::Stub> stub_;
  const connect::Endpoint& endpoint_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t in_flight_ = 0;  // guarded by mutex_
};

}  // namespace quire::load

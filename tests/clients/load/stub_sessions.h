// StubSessions: the sessions of a stub server, as far as a load client may know of them: how many
// tokens each has, who is busy, and what is refused.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "quire/v1/inference.pb.h"
#include "quire/v1/sessions.grpc.pb.h"

namespace quire::load {

// Thread-safe.
class StubSessions final : public v1::Sessions::CallbackService {
 public:
  // As a server does: NOT_FOUND, or FAILED_PRECONDITION while busy or at another position. From an
  // OK on the session is busy; `position` is where the turn ends so far, its prompt included.
  grpc::Status BeginTurn(const v1::GenerateRequest& request, uint32_t* position);
  void EndTurn(const std::string& session, uint32_t position);

  // "fork A to B at 12", "close A", in order.
  std::vector<std::string> calls() const;
  // Those that are open.
  std::map<std::string, uint32_t> positions() const;

 private:
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const v1::ListSessionsRequest*,
                                 v1::ListSessionsResponse*) override;
  grpc::ServerUnaryReactor* Fork(grpc::CallbackServerContext* context,
                                 const v1::ForkSessionRequest* request, v1::Session*) override;
  grpc::ServerUnaryReactor* Close(grpc::CallbackServerContext* context,
                                  const v1::CloseSessionRequest* request,
                                  v1::CloseSessionResponse*) override;

  struct Session {
    uint32_t position = 0;
    bool busy = false;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Session> sessions_;  // guarded by mutex_, as the rest
  std::vector<std::string> calls_;
};

}  // namespace quire::load

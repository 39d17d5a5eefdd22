// CallGate: stands before every call of a listener. gRPC asks it when the headers of a call have
// come and its message has not, so a caller who may not call costs no message. Refusals are
// counted, and slowed when there are many: answered a second later, without a thread that waits.
#pragma once

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/identity/door.h"
#include "server/metrics/auth_metrics.h"

namespace quire {

class CallGate {
 public:
  // Refusals a minute that are answered at once; later ones wait.
  static constexpr int kQuickRefusals = 60;
  static constexpr int64_t kSlowNs = 1'000'000'000;
  // Refusals that wait at a time; one more is answered at once.
  static constexpr size_t kMaxSlow = 4096;

  // Both outlive every server whose credentials the gate guards.
  CallGate(const Door* door, AuthMetrics* metrics);
  ~CallGate();
  CallGate(const CallGate&) = delete;
  CallGate& operator=(const CallGate&) = delete;

  // From now on the gate is asked about every call that comes over these credentials.
  void Guard(grpc_server_credentials* credentials);

  // Answers the waiting refusals at once, and slows none any more. Before its server shuts down.
  void Open();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// C++'s side of the library's credentials, which it takes over; `gate` is asked about every call.
std::shared_ptr<grpc::ServerCredentials> GuardedCredentials(grpc_server_credentials* credentials,
                                                            CallGate* gate);
// Of a listener without TLS.
std::shared_ptr<grpc::ServerCredentials> PlaintextCredentials(CallGate* gate);

}  // namespace quire

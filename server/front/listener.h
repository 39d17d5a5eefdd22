// Listener: one address at which services are called: the accept loop, the gate before each call,
// and gRPC's server behind its fence. docs/grpc.md says why each is there.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/call/front_options.h"
#include "server/call/raw_service.h"
#include "server/front/acceptor.h"
#include "server/identity/call_gate.h"
#include "server/metrics/metrics.h"
#include "server/tls/certificate_store.h"
#include "server/watch/watchdog.h"

namespace quire {

class Listener {
 public:
  // Per connection. Several times the limit of proxies: requests wait in the engine's queue, which
  // orders them, rather than in a client.
  static constexpr int kMaxConcurrentStreams = 1024;

  // Binds; nothing is answered yet. Errors: Acceptor::Listen's. All arguments outlive the listener.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const Acceptor::Options& address,
                                                        const FrontOptions* limits,
                                                        const Door* door, ServerMetrics* metrics);
  ~Listener();

  int port() const { return acceptor_->port(); }  // 0 for a Unix socket
  ConnectionTable& connections() { return acceptor_->connections(); }

  // Answers calls from now on, over TLS with these certificates; null: plaintext. The services
  // outlive the listener's calls, the certificates its server.
  absl::Status Serve(const std::vector<RawService*>& services, CertificateStore* certificates);

  // Accepts no connection any more, and answers refusals that wait. Idempotent.
  void StopAccepting();
  // Waits up to `wait_ns` for calls to end, cancels the others, and cuts the connections of those
  // that do not end even so. After StopAccepting.
  void Shutdown(int64_t wait_ns);
  // Every call has ended and nothing uses its reactor any more. After Shutdown.
  void Close() { server_.reset(); }

 private:
  class UnknownMethods;

  Listener(std::unique_ptr<Acceptor> acceptor, const FrontOptions* limits, const Door* door,
           ServerMetrics* metrics);

  const std::unique_ptr<Acceptor> acceptor_;
  const FrontOptions& limits_;
  ServerMetrics& metrics_;
  CallGate gate_;
  std::unique_ptr<UnknownMethods> unknown_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> server_;
  // A call whose write is blocked by a full socket cannot be cancelled: only cutting the connection
  // ends it.
  Watchdog cutter_{
      [this] { connections().CutAll("the server is ending and its calls do not end"); }};
};

}  // namespace quire

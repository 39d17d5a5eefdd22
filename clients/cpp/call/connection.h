// Connection: the channel to one server, and the rule by which every RPC on it runs: with the
// command line's timeout, and cancelled by ctrl-C.
#pragma once

#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <string>

#include "clients/connect/endpoint.h"
#include "clients/cpp/call/interrupt.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "quire/v1/control.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "quire/v1/jobs.grpc.pb.h"
#include "quire/v1/sessions.grpc.pb.h"

namespace quire::cli {

class Connection {
 public:
  // `interrupt` outlives this. Connects lazily, at the first RPC. Every RPC carries `traceparent`
  // (W3C Trace Context) unless it is empty; the server judges it.
  Connection(connect::Endpoint endpoint, double timeout_seconds, Interrupt* interrupt,
             const std::string& traceparent = "");

  // Runs one RPC: `call` gets a fresh context and returns the RPC's status. A status that says no
  // more than that there is no connection is given its cause.
  grpc::Status Run(const std::function<grpc::Status(grpc::ClientContext*)>& call);

  // A connection to another server, with the same timeout and interrupt.
  std::unique_ptr<Connection> To(connect::Endpoint endpoint) const;
  // From now on every RPC names this session to the proxies on its way, which choose the session's
  // server by it (docs/fleet.md), unless the endpoint's headers name another value.
  void UseSession(const std::string& name);

  v1::Inference::Stub& inference() { return *inference_; }
  v1::Control::Stub& control() { return *control_; }
  v1::Sessions::Stub& sessions() { return *sessions_; }
  v1::Jobs::Stub& jobs() { return *jobs_; }
  grpc::health::v1::Health::Stub& health() { return *health_; }

 private:
  const connect::Endpoint endpoint_;
  const double timeout_seconds_;
  Interrupt* const interrupt_;
  const std::string traceparent_;
  std::string session_;  // empty: none
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Control::Stub> control_;
  std::unique_ptr<v1::Sessions::Stub> sessions_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace quire::cli

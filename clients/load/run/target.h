// Target: the server under load: its connections, and the facts it reports about itself.
#pragma once

#include <grpcpp/channel.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/connect/endpoint.h"
#include "clients/load/values/settings.h"
#include "clients/load/workload/workload.h"
#include "quire/v1/inference.grpc.pb.h"
#include "quire/v1/sessions.grpc.pb.h"

namespace quire::load {

class Target {
 public:
  // Asks the server for its facts. An error names the fault of the address, the server or the
  // model.
  static absl::StatusOr<std::unique_ptr<Target>> Connect(const Settings& settings);

  // Opens `count` connections and waits until they are ready.
  absl::Status Open(int32_t count);

  const ModelFacts& model() const { return model_; }
  // "quire 0.1.0, cpu (AVX-512, 2 threads)".
  const std::string& description() const { return description_; }

  // The connection with the fewest streams, which now has one more; until Leave. Any thread.
  int32_t Join();
  void Leave(int32_t connection);
  v1::Inference::Stub* stub(int32_t connection);

  // On the first connection; after Open.
  std::unique_ptr<v1::Sessions::Stub> MakeSessionsStub() const;

  // True if the server has the service Sessions. Blocks.
  bool KeepsSessions() const;
  // True if a new connection gets an answer within two seconds. Blocks.
  bool Answers() const;

 private:
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::Inference::Stub> stub;
    std::atomic<int32_t> streams{0};
  };

  explicit Target(const connect::Endpoint& endpoint) : endpoint_(endpoint) {}
  absl::Status Learn(const std::string& model);

  const connect::Endpoint endpoint_;
  ModelFacts model_;
  std::string description_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

// Number of connections for so many streams at once: a server takes 1,024 on each, and gRPC's
// client holds back the rest in silence.
int32_t ConnectionsFor(int64_t streams);

}  // namespace quire::load

// Server: the life of one server process. Owns the engine, the gRPC front and the admin port.
// Start-up and shutdown order are one function each (server.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine_setup.h"
#include "engine/worker/transport.h"
#include "server/config/server_config.h"
#include "server/start/start_error.h"

namespace quire {

// Replaces EngineWorkers in tests: returns a transport and describes the device.
using WorkerStarter =
    std::function<absl::StatusOr<std::unique_ptr<Transport>>(const EngineSetup&, std::string*)>;

class Server {
 public:
  // `settings` are validated and name a model directory. `started_ns`: start of the process by the
  // steady clock; the time to READY counts from it.
  Server(const Settings& settings, int64_t started_ns, WorkerStarter start_workers = {});
  ~Server();

  // Binds, loads and serves. The admin port answers during loading; the server accepts requests
  // once this has returned without an error.
  std::optional<StartError> Start();
  // True once the server accepts requests.
  bool Ready() const;
  // Require a started server; port() is 0 on a Unix socket.
  int port() const;
  int metrics_port() const;
  // Watches the health of a started server until a shutdown is requested or the device fails, then
  // shuts down in order. Call it on the thread that called Start.
  ExitCode Run();
  // Makes Run drain and return. Idempotent; any thread, at any time.
  void RequestDrain();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire

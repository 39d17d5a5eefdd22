// Checks between the server's settings.
#include "server/server_config.h"

#include "server/listen_address.h"

namespace quire {

absl::Status ServerConfig::Validate() const {
  std::string faults;
  if (front.uds.empty() && !IsLoopback(front.host)) {
    faults += "--host " + front.host +
              " would serve requests in plaintext beyond this machine, which Quire refuses: keep "
              "--host 127.0.0.1, or serve a Unix socket with --uds PATH, and put a proxy that ends "
              "TLS (HAProxy) in front";
  }
  if (front.uds.empty() && front.port != 0 && front.port == metrics_port) {
    if (!faults.empty()) faults += '\n';
    faults += "--port and --metrics-port are both " + std::to_string(front.port) +
              ": requests and metrics need a port each";
  }
  return faults.empty() ? absl::OkStatus() : absl::InvalidArgumentError(faults);
}

}  // namespace quire

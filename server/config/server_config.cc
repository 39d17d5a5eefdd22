// Checks between the server's settings.
#include "server/config/server_config.h"

#include <algorithm>
#include <filesystem>

#include "kernels/cpu/host_limits.h"
#include "server/front/listen_address.h"
#include "server/tracing/otlp_endpoint.h"

namespace quire {
namespace {}  // namespace

std::string EndpointFault(const std::string& text) {
  if (text.empty()) return "";
  const absl::StatusOr<OtlpEndpoint> endpoint = ParseOtlpEndpoint(text);
  if (!endpoint.ok()) return std::string(endpoint.status().message());
  if (endpoint->has_scheme || IsLoopback(endpoint->host)) return "";
  return "--otlp-endpoint " + text +
         " leaves this machine and says neither http:// for plaintext "
         "nor https:// for TLS: write http://" +
         text + " or https://" + text;
}

bool ServerConfig::BeyondThisMachine() const {
  return front.uds.empty() && !IsLoopback(front.host);
}

absl::Status ServerConfig::Validate() const {
  std::string faults;
  if (BeyondThisMachine() && !front.insecure_plaintext) faults += PlaintextRefusal(front.host);
  if (front.uds.empty() && front.port != 0 && front.port == metrics_port) {
    if (!faults.empty()) faults += '\n';
    faults += "--port and --metrics-port are both " + std::to_string(front.port) +
              ": requests and metrics need a port each";
  }
  const std::string endpoint_fault = EndpointFault(otlp_endpoint);
  if (!faults.empty() && !endpoint_fault.empty()) faults += '\n';
  faults += endpoint_fault;
  return faults.empty() ? absl::OkStatus() : absl::InvalidArgumentError(faults);
}

Settings ResolveServer(Settings settings) {
  ServerConfig& server = settings.server;
  if (server.served_model_names.empty()) {
    std::error_code error;
    const auto path = std::filesystem::weakly_canonical(settings.engine.model, error);
    const auto named = path.has_filename() ? path : path.parent_path();
    server.served_model_names = {named.filename().string()};
  }
  if (server.front.text_threads == 0) {
    server.front.text_threads = std::max(1, cpu::UsableCores() / 4);
  }
  return settings;
}

}  // namespace quire

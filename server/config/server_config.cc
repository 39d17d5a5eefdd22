// Checks between the server's settings.
#include "server/config/server_config.h"

#include <algorithm>
#include <utility>

#include "engine/model/checkpoint/model_files.h"
#include "kernels/cpu/host_limits.h"
#include "server/answer_parts/call_format.h"
#include "server/answer_parts/reasoning_format.h"
#include "server/front/listen_address.h"
#include "server/tracing/otlp_endpoint.h"

namespace quire {
namespace {

// Adds a line.
void AddFault(const std::string& fault, std::string* faults) {
  if (fault.empty()) return;
  if (!faults->empty()) *faults += '\n';
  *faults += fault;
}

// The contradiction between the settings of TLS, as a sentence; empty: none.
std::string TlsFault(const FrontOptions& front) {
  const TlsFiles& tls = front.tls;
  if (!tls.on()) {
    for (const auto& [flag, file] :
         {std::pair("--ssl-keyfile", &tls.key), std::pair("--ssl-ca-certs", &tls.client_ca)}) {
      if (!file->empty()) return std::string(flag) + " needs --ssl-certfile: without it no TLS";
    }
    if (tls.clients == "auto") return "";
    return "--ssl-cert-reqs needs --ssl-certfile: without it no TLS";
  }
  if (!front.uds.empty()) {
    return "--ssl-certfile and --uds exclude each other: a Unix socket is plaintext, and the "
           "permissions of its folder protect it";
  }
  if (front.insecure_plaintext) {
    return "--ssl-certfile and --insecure-plaintext exclude each other: leave one out";
  }
  const bool asks = tls.clients == "required" || tls.clients == "optional";
  if (asks && tls.client_ca.empty()) {
    return "--ssl-cert-reqs " + tls.clients +
           " needs --ssl-ca-certs: the authorities that sign the clients' certificates";
  }
  if (tls.clients == "none" && !tls.client_ca.empty()) {
    return "--ssl-cert-reqs none asks for no certificate, so --ssl-ca-certs has no effect: leave "
           "one out";
  }
  return "";
}

// No family of --reasoning-parser or --tool-call-parser.
bool IsNoFamily(const std::string& parser) { return parser == "auto" || parser == "none"; }

std::string UnknownParser(const std::string& flag, const std::string& name,
                          const std::string& known) {
  return flag + " " + name + ": no such family; write auto, none, or one of " + known;
}

}  // namespace

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

std::string ServerConfig::Exposure() const {
  if (!BeyondThisMachine()) return "";
  const bool keys = !api_keys.empty();
  if (!front.tls.on()) {
    return keys ? "--insecure-plaintext: keys and requests are not encrypted"
                : "--insecure-plaintext: each peer that reaches the address may use this server, "
                  "and requests are not encrypted";
  }
  if (keys || front.tls.RequiredOfClients() == ClientCertificates::kRequired) return "";
  return "each peer that reaches the address may use this server: --api-keys asks for a key, "
         "--ssl-ca-certs for a client certificate";
}

absl::Status ServerConfig::Validate() const {
  std::string faults;
  if (BeyondThisMachine() && !front.tls.on() && !front.insecure_plaintext) {
    AddFault(PlaintextRefusal(front.host), &faults);
  }
  AddFault(TlsFault(front), &faults);
  if (front.uds.empty() && front.port != 0 && front.port == metrics_port) {
    AddFault("--port and --metrics-port are both " + std::to_string(front.port) +
                 ": requests and metrics need a port each",
             &faults);
  }
  if (!front.uds.empty() && front.uds == front.admin_uds) {
    AddFault("--uds and --admin-uds are both " + front.uds + ": each needs a socket of its own",
             &faults);
  }
  AddFault(EndpointFault(otlp_endpoint), &faults);
  if (skip_tokenizer_init && !tokenizer.empty()) {
    AddFault("--tokenizer and --skip-tokenizer-init exclude each other: leave one out", &faults);
  }
  if (skip_tokenizer_init && !chat_template.empty()) {
    AddFault("--chat-template and --skip-tokenizer-init exclude each other: leave one out",
             &faults);
  }
  if (!IsNoFamily(reasoning_parser) && FindReasoningFormat(reasoning_parser) == nullptr) {
    AddFault(UnknownParser("--reasoning-parser", reasoning_parser, ReasoningFormatNames()),
             &faults);
  }
  if (!IsNoFamily(tool_call_parser) && FindCallFormat(tool_call_parser) == nullptr) {
    AddFault(UnknownParser("--tool-call-parser", tool_call_parser, CallFormatNames()), &faults);
  }
  return faults.empty() ? absl::OkStatus() : absl::InvalidArgumentError(faults);
}

std::string TextDirectory(const Settings& settings) {
  if (settings.server.skip_tokenizer_init) return "";
  const std::string& own = settings.server.tokenizer;
  return own.empty() ? settings.engine.model : own;
}

Settings ResolveServer(Settings settings) {
  ServerConfig& server = settings.server;
  if (server.served_model_names.empty()) {
    server.served_model_names = {RepositoryName(settings.engine.model)};
  }
  if (server.front.text_threads == 0) {
    server.front.text_threads = std::max(1, cpu::UsableCores() / 4);
  }
  return settings;
}

}  // namespace quire

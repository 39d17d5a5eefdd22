// The rows of the door: addresses, certificates, keys.
#include "server/config/listening_settings.h"

#include <cstdint>
#include <string_view>

namespace quire {
namespace {

using flags::Flag;
using flags::Unit;

constexpr std::string_view kListening = "Listening";
constexpr double kMaxPort = 65535;
constexpr double kDay = 86400;

void AddTls(TlsFiles* t, std::vector<Flag>* rows) {
  rows->insert(
      rows->end(),
      {
          {.name = "ssl-certfile",
           .group = kListening,
           .help = "PEM file of the server's certificate, then its issuers; turns TLS on",
           .target = &t->certificate,
           .aliases = "ssl-cert-file",
           .placeholder = "FILE",
           .unset = "none"},
          {.name = "ssl-keyfile",
           .group = kListening,
           .help = "PEM file of its key, not encrypted",
           .target = &t->key,
           .aliases = "ssl-key-file",
           .placeholder = "FILE",
           .unset = "in the file of the certificate"},
          {.name = "ssl-ca-certs",
           .group = kListening,
           .help = "PEM file of the authorities that sign the clients' certificates",
           .target = &t->client_ca,
           .placeholder = "FILE",
           .unset = "none"},
          {.name = "ssl-cert-reqs",
           .group = kListening,
           .help = "whether clients need a certificate; auto: required with --ssl-ca-certs",
           .target = &t->clients,
           .choices = "auto|none=0|optional=1|required=2"},
      });
}

void AddCallers(ServerConfig* s, std::vector<Flag>* rows) {
  rows->insert(rows->end(),
               {
                   {.name = "api-keys",
                    .group = kListening,
                    .help = "file of keys' digests and tenants; callers then need a key",
                    .target = &s->api_keys,
                    .placeholder = "FILE",
                    .unset = "none"},
                   {.name = "admin-uds",
                    .group = kListening,
                    .help = "path of a Unix socket that answers Control with every scope",
                    .target = &s->front.admin_uds,
                    .placeholder = "PATH",
                    .unset = "none"},
                   {.name = "max-detach-seconds",
                    .group = kListening,
                    .help = "longest detach_seconds of a request; 0: none outlives its call",
                    .target = &s->front.max_detach_seconds,
                    .unit = Unit::kSeconds,
                    .highest = 3600},
                   {.name = "max-detached-bytes",
                    .group = kListening,
                    .help = "memory of answers that are kept for calls that come back",
                    .target = &s->front.max_detached_bytes,
                    .unit = Unit::kBytes,
                    .lowest = double{1 << 20},
                    .highest = double{int64_t{1} << 40}},
               });
}

void AddAddresses(ServerConfig* s, std::vector<Flag>* rows) {
  FrontOptions* f = &s->front;
  rows->insert(
      rows->end(),
      {
          {.name = "host",
           .group = kListening,
           .help = "gRPC address; others than loopback need TLS or --insecure-plaintext",
           .target = &f->host,
           .aliases = "server-name",
           .placeholder = "ADDRESS"},
          {.name = "port",
           .group = kListening,
           .help = "gRPC port; 0: any free port",
           .target = &f->port,
           .highest = kMaxPort,
           .aliases = "grpc-port|server-port"},
          {.name = "uds",
           .group = kListening,
           .help = "path of a Unix socket for gRPC, instead of host and port",
           .target = &f->uds,
           .placeholder = "PATH",
           .unset = "none"},
          {.name = "insecure-plaintext",
           .group = kListening,
           .help =
               "let --host be any address without TLS: for a sidecar, mesh or container network",
           .target = &f->insecure_plaintext},
          {.name = "metrics-host",
           .group = kListening,
           .help = "address of metrics, health and the status page",
           .target = &s->metrics_host,
           .placeholder = "ADDRESS"},
          {.name = "metrics-port",
           .group = kListening,
           .help = "metrics port; 0: any free port",
           .target = &s->metrics_port,
           .highest = kMaxPort,
           .aliases = "prometheus-port"},
          {.name = "reflection",
           .group = kListening,
           .help = "let clients list the services and their messages",
           .target = &f->reflection},
          {.name = "max-request-bytes",
           .group = kListening,
           .help = "maximum size of a request message; beyond it, RESOURCE_EXHAUSTED",
           .target = &f->max_request_bytes,
           .unit = Unit::kBytes,
           .lowest = 1024,
           .highest = double{1 << 30}},
          {.name = "slow-reader-timeout",
           .group = kListening,
           .help = "end a stream whose output is not read for this long",
           .target = &f->slow_reader_timeout_seconds,
           .unit = Unit::kSeconds,
           .lowest = 1,
           .highest = kDay},
      });
}

}  // namespace

void AddListening(ServerConfig* server, std::vector<Flag>* rows) {
  AddAddresses(server, rows);
  AddTls(&server->front.tls, rows);
  AddCallers(server, rows);
}

}  // namespace quire

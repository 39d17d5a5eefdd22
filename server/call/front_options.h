// FrontOptions: the limits and addresses of the gRPC front, as plain values.
#pragma once

#include <cstdint>
#include <string>

#include "server/identity/door.h"
#include "server/tls/tls_files.h"

namespace quire {

struct FrontOptions {
  std::string host = "127.0.0.1";   // ignored when uds is set
  int port = 50051;                 // 0: any free port
  std::string uds;                  // path of a Unix socket (0700), instead of TCP
  std::string admin_uds;            // path of a socket for Control with every scope; empty: none
  TlsFiles tls;                     // off: plaintext; never used with uds
  bool insecure_plaintext = false;  // plaintext, and host may be reachable from other machines
  int64_t max_request_bytes = 4 << 20;
  int64_t max_reply_bytes = 4 << 20;  // what clients accept by default; larger is refused by us
  int64_t resource_quota_bytes = 256 << 20;
  int max_connections = 10000;
  // Live Generate calls; beyond: UNAVAILABLE. More than may run and wait, which the engine bounds.
  int max_open_streams = 16384 + 1024;
  int64_t stream_buffer_bytes = 256 << 10;  // unsent output of one stream before it is shed
  double slow_reader_timeout_seconds = 60;  // unsent output of one stream older than this: shed
  double max_detach_seconds = 60;           // that a request may ask for; 0: none outlives its call
  int64_t max_detached_bytes = 256 << 20;   // of the answers of such requests
  double default_deadline_seconds = 600;    // when the client sets none
  int text_threads = 0;                     // see ResolveServer; 0 is taken for 1
  bool reflection = true;
  bool log_requests = true;  // see request_log.h
  // Outlives the front. Null: every caller may do everything.
  const Door* door = nullptr;
};

}  // namespace quire

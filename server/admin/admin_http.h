// AdminHttp: the HTTP port for metrics, health and the status page. GET and HEAD only, one request
// per connection. One thread serves all connections and waits for none, so a stalled scraper delays
// no other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace quire {

struct AdminOptions {
  std::string host = "127.0.0.1";
  int port = 0;                  // 0: any free port
  int max_connections = 128;     // further ones wait in the kernel's queue
  int idle_timeout_seconds = 5;  // closes a connection without traffic
  int max_age_seconds = 15;      // closes any connection
};

struct AdminPage {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string security_policy;  // the header Content-Security-Policy; empty: none
  std::string body;
};

class AdminHttp {
 public:
  // Builds the page of a path ("/metrics"). Called on the port's thread, one call at a time; must
  // not block, because the port serves no other request meanwhile. Query strings and headers are
  // ignored.
  using PageSource = std::function<AdminPage(std::string_view path)>;

  // Starts to listen. UNAVAILABLE if the address is in use.
  static absl::StatusOr<std::unique_ptr<AdminHttp>> Start(const AdminOptions& options,
                                                          PageSource pages);
  // Closes all connections; `pages` is not called afterwards.
  ~AdminHttp();

  int port() const;
  // Closes connections older than max_age_seconds. Call it about once a second. Any thread.
  void CloseStale(int64_t now_ns);

 private:
  struct State;
  explicit AdminHttp(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire

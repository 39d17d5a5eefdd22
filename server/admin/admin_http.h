// AdminHttp: the port for those who watch the server: /metrics, /livez, /readyz, /startupz and a
// status page. GET and HEAD only, one request a connection. One thread serves all connections
// without waiting for any of them, so scrapers that stall take nothing from the others.
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
  int port = 0;                  // 0: any free one
  int max_connections = 128;     // further ones wait in the kernel's queue
  int idle_timeout_seconds = 5;  // a connection on which nothing moves
  int max_age_seconds = 15;      // any connection, however busy it looks
};

struct AdminPage {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class AdminHttp {
 public:
  // Builds the page of a path ("/metrics"). Called on the port's thread, one call at a time; it
  // must not block, since nobody else is served meanwhile. What a request holds beyond its path is
  // ignored.
  using PageSource = std::function<AdminPage(std::string_view path)>;

  // Listens at once. UNAVAILABLE when the address is taken.
  static absl::StatusOr<std::unique_ptr<AdminHttp>> Start(const AdminOptions& options,
                                                          PageSource pages);
  // Ends all connections; `pages` is not called afterwards.
  ~AdminHttp();

  int port() const;
  // Ends connections older than max_age_seconds. Call it every second or so. Any thread.
  void CloseStale(int64_t now_ns);

 private:
  struct State;
  explicit AdminHttp(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire

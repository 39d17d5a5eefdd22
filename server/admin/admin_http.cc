// The admin port over libmicrohttpd: one thread with epoll; every connection has bounded memory and
// time.
#include "server/admin/admin_http.h"

#include <microhttpd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "server/front/listen_address.h"

namespace quire {
namespace {

// A scrape's request line and headers take less than 2 KiB.
constexpr size_t kConnectionBytes = 16 << 10;
// For a connection that was being accepted when all others were closed.
constexpr std::chrono::milliseconds kLookAgain(10);

AdminPage WrongMethod() { return {.status = MHD_HTTP_METHOD_NOT_ALLOWED, .body = "GET or HEAD\n"}; }

MHD_Result Send(MHD_Connection* connection, const AdminPage& page) {
  MHD_Response* response = MHD_create_response_from_buffer(
      page.body.size(), const_cast<char*>(page.body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, "Content-Type", page.content_type.c_str());
  MHD_add_response_header(response, "Cache-Control", "no-store");
  MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
  if (!page.security_policy.empty()) {
    MHD_add_response_header(response, "Content-Security-Policy", page.security_policy.c_str());
  }
  MHD_add_response_header(response, "Connection", "close");
  if (page.status == MHD_HTTP_METHOD_NOT_ALLOWED) {
    MHD_add_response_header(response, "Allow", "GET, HEAD");
  }
  const MHD_Result queued =
      MHD_queue_response(connection, static_cast<unsigned int>(page.status), response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace

struct AdminHttp::State {
  AdminOptions options;
  PageSource pages;
  MHD_Daemon* daemon = nullptr;
  int port = 0;
  std::mutex mutex;
  std::condition_variable none_open;
  std::map<int, int64_t> opened_ns;  // by descriptor; only open ones; under mutex

  // The further arguments of libmicrohttpd (version, body, its state) are not needed.
  template <typename... Unused>
  static MHD_Result OnRequest(void* self, MHD_Connection* connection, const char* url,
                              const char* method, Unused...) {
    const std::string_view verb = method;
    if (verb != "GET" && verb != "HEAD") return Send(connection, WrongMethod());
    return Send(connection, static_cast<State*>(self)->pages(url));
  }

  static void OnConnection(void* self, MHD_Connection* connection, void**,
                           MHD_ConnectionNotificationCode what) {
    const MHD_ConnectionInfo* info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == nullptr) return;
    State& state = *static_cast<State*>(self);
    const std::lock_guard lock(state.mutex);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
      state.opened_ns[info->connect_fd] = SteadyNowNs();
    } else {
      state.opened_ns.erase(info->connect_fd);
      if (state.opened_ns.empty()) state.none_open.notify_all();
    }
  }

  // Ends all connections. Requires that none is accepted any more, but one that is under way.
  void CloseAll() {
    std::unique_lock lock(mutex);
    while (!opened_ns.empty()) {
      for (const auto& [fd, ns] : opened_ns) shutdown(fd, SHUT_RDWR);
      none_open.wait_for(lock, kLookAgain);
    }
  }
};

AdminHttp::AdminHttp(std::unique_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<AdminHttp>> AdminHttp::Start(const AdminOptions& options,
                                                            PageSource pages) {
  ASSIGN_OR_RETURN(const int fd, ListenTcp(options.host, options.port, "--metrics-port"));
  auto state = std::make_unique<State>();
  state->options = options;
  state->pages = std::move(pages);
  const absl::StatusOr<int> port = BoundPort(fd, options.host);
  if (!port.ok()) {
    close(fd);
    return port.status();
  }
  state->port = *port;
  state->daemon = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, nullptr, nullptr, &State::OnRequest,
      state.get(), MHD_OPTION_LISTEN_SOCKET, fd,                                        //
      MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned int>(options.max_connections),  //
      MHD_OPTION_CONNECTION_TIMEOUT, static_cast<unsigned int>(options.idle_timeout_seconds),
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes,             //
      MHD_OPTION_NOTIFY_CONNECTION, &State::OnConnection, state.get(),  //
      MHD_OPTION_END);
  if (state->daemon == nullptr) {
    close(fd);
    return absl::UnavailableError("cannot serve the admin port on " + options.host +
                                  ": out of threads or descriptors");
  }
  return std::unique_ptr<AdminHttp>(new AdminHttp(std::move(state)));
}

// Once it is told to end, the library takes no response any more, and still sends the one of a
// malformed request, which crashes. So no connection is left when it is told.
AdminHttp::~AdminHttp() {
  const int listening = MHD_quiesce_daemon(state_->daemon);
  state_->CloseAll();
  MHD_stop_daemon(state_->daemon);
  if (listening >= 0) close(listening);
}

int AdminHttp::port() const { return state_->port; }

void AdminHttp::CloseStale(int64_t now_ns) {
  const int64_t oldest_ns = now_ns - int64_t{state_->options.max_age_seconds} * 1'000'000'000;
  const std::lock_guard lock(state_->mutex);
  for (const auto& [fd, opened_ns] : state_->opened_ns) {
    // Only shut down here: the port's thread closes the descriptor and erases its entry.
    if (opened_ns < oldest_ns) shutdown(fd, SHUT_RDWR);
  }
}

}  // namespace quire

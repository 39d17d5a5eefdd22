// Binds without SO_REUSEPORT, so that a second server cannot share the port.
#include "server/front/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "engine/base/status_macros.h"

namespace quire {
namespace {

constexpr int kBacklog = 128;

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) freeaddrinfo(first);
  }
};

std::string Reason(int error, const std::string& flag) {
  switch (error) {
    case EADDRINUSE: return "another process listens there; stop it or choose another " + flag;
    case EACCES: return "ports below 1024 need privileges; choose a higher " + flag;
    case EADDRNOTAVAIL: return "this machine has no such address";
    default: return strerror(error);
  }
}

absl::Status CannotListen(const std::string& address, const std::string& reason) {
  return absl::UnavailableError("cannot listen on " + address + ": " + reason);
}

// Checks that a socket can be created at `path`, which does not exist.
absl::Status CheckFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return CannotListen(
      path, "folder " + folder + ": " + strerror(errno) + "; create it or choose another --uds");
}

}  // namespace

absl::StatusOr<int> ListenTcp(const std::string& host, int port, const std::string& flag) {
  const std::string address = host + ":" + std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  AddressList list;
  const std::string service = std::to_string(port);
  // An IPv6 address may be in brackets, as before a port.
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  const std::string bare = bracketed ? host.substr(1, host.size() - 2) : host;
  if (const int error = getaddrinfo(bare.c_str(), service.c_str(), &hints, &list.first)) {
    return CannotListen(address, gai_strerror(error));
  }
  const addrinfo& where = *list.first;
  const int fd = socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return CannotListen(address, strerror(errno));
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // old connections may linger
  if (bind(fd, where.ai_addr, where.ai_addrlen) != 0 || listen(fd, kBacklog) != 0) {
    const int error = errno;
    close(fd);
    return CannotListen(address, Reason(error, flag));
  }
  return fd;
}

absl::StatusOr<int> BoundPort(int socket, const std::string& host) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return absl::UnavailableError("cannot learn the port of " + host + ": " + std::strerror(errno));
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

absl::Status CheckTcpFree(const std::string& host, int port, const std::string& flag) {
  ASSIGN_OR_RETURN(const int fd, ListenTcp(host, port, flag));
  close(fd);
  return absl::OkStatus();
}

absl::Status CheckUnixSocketFree(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return CannotListen(path, "a socket's path has at most " +
                                  std::to_string(sizeof address.sun_path - 1) +
                                  " bytes; choose a shorter --uds");
  }
  struct stat file {};
  if (stat(path.c_str(), &file) != 0) return CheckFolder(path);
  if (!S_ISSOCK(file.st_mode)) {
    return CannotListen(path,
                        "a file that is not a socket exists; remove it or choose another --uds");
  }
  path.copy(address.sun_path, path.size());
  // Non-blocking: connecting to a live server with a full queue would wait.
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return CannotListen(path, strerror(errno));
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  const int error = connected ? EADDRINUSE : errno;
  close(fd);
  if (error == ECONNREFUSED) return absl::OkStatus();  // stale: no process listens
  return CannotListen(path, Reason(error == EAGAIN ? EADDRINUSE : error, "--uds"));
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost" || host == "::1" || host == "[::1]") return true;
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

std::string PlaintextRefusal(const std::string& host) {
  return "--host " + host +
         " would serve requests in plaintext beyond this machine, which Quire refuses: give "
         "--ssl-certfile and --ssl-keyfile, and --ssl-ca-certs to ask for clients' certificates; "
         "or keep --host 127.0.0.1 (or --uds PATH) and put a proxy that ends TLS (HAProxy) in "
         "front; where "
         "a sidecar, mesh or container network protects the address, give --insecure-plaintext";
}

}  // namespace quire

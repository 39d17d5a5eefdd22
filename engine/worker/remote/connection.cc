// Addresses, socket options, and frames over a socket.
#include "engine/worker/remote/connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/base/status_macros.h"

namespace quire {
namespace {

// A host that is gone without a word is noticed after idle + probes * interval seconds, or after
// the user timeout when bytes are on their way to it.
constexpr int kIdleSeconds = 6, kProbeSeconds = 3, kProbes = 3, kUserTimeoutMs = 15'000;
constexpr int kConnectMs = 5000;
constexpr size_t kPiece = size_t{1} << 16;

std::string Reason(const std::string& what, int error) {
  return what + ": " + std::strerror(error);
}

// All addresses of "HOST:PORT".
class Resolved {
 public:
  static absl::StatusOr<Resolved> Of(const std::string& address, bool listen) {
    const absl::Status malformed = absl::InvalidArgumentError(
        "--leader-address " + address + ": give HOST:PORT, like leader.example:50052");
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos || colon + 1 == address.size()) return malformed;
    std::string host = address.substr(0, colon);
    const std::string port = address.substr(colon + 1);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    if (host.empty() && !listen) return malformed;
    const addrinfo hints{.ai_flags = AI_NUMERICSERV | (listen ? AI_PASSIVE : 0),
                         .ai_socktype = SOCK_STREAM};
    Resolved resolved;
    const int error =
        getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &resolved.first_);
    if (error == 0) return resolved;
    const std::string why = "--leader-address " + address + ": " + gai_strerror(error);
    // A name may exist later, as that of a pod that is starting.
    const bool final = listen || error == EAI_SERVICE;
    return final ? absl::InvalidArgumentError(why) : absl::UnavailableError(why);
  }
  Resolved(Resolved&& other) noexcept : first_(std::exchange(other.first_, nullptr)) {}
  Resolved& operator=(Resolved&&) = delete;
  ~Resolved() {
    if (first_ != nullptr) freeaddrinfo(first_);
  }
  const addrinfo* first() const { return first_; }

 private:
  Resolved() = default;
  addrinfo* first_ = nullptr;
};

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

absl::Status CheckReach(const std::string& address, const Resolved& resolved, bool anywhere) {
  for (const addrinfo* at = resolved.first(); at != nullptr && !anywhere; at = at->ai_next) {
    if (IsLoopback(at->ai_addr)) continue;
    return absl::InvalidArgumentError(
        "--leader-address " + address +
        ": other hosts can reach it, so both sides need the same --group-key-file");
  }
  return absl::OkStatus();
}

void SetOptions(int fd) {
  const auto set = [fd](int level, int name, int value) {
    setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

using GetName = int (*)(int, sockaddr*, socklen_t*);

// The numeric host and port at one end of a connection.
std::pair<std::string, std::string> EndOf(int fd, GetName get_name) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  if (get_name(fd, at, &length) != 0 ||
      getnameinfo(at, length, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {"?", "?"};
  }
  return {host.data(), port.data()};
}

// Connects within kConnectMs. 0, or the error.
int ConnectSocket(int fd, const addrinfo& to) {
  const timeval patience{.tv_sec = kConnectMs / 1000, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (connect(fd, to.ai_addr, to.ai_addrlen) != 0) return errno == EINPROGRESS ? ETIMEDOUT : errno;
  const timeval forever{};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof forever);
  return 0;
}

}  // namespace

Connection::Connection(Descriptor socket) : socket_(std::move(socket)) {
  SetOptions(fd());
  local_host_ = EndOf(fd(), getsockname).first;
  const auto [host, port] = EndOf(fd(), getpeername);
  peer_ = host.find(':') == std::string::npos ? host + ":" + port : "[" + host + "]:" + port;
}

absl::Status Connection::Send(FrameKind kind, std::string_view bytes) {
  std::string head = FrameHead(kind, bytes.size());
  std::array<iovec, 2> parts = {
      {{head.data(), head.size()}, {const_cast<char*>(bytes.data()), bytes.size()}}};
  const std::lock_guard lock(sending_);
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = sendmsg(fd(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0)
      return absl::UnavailableError(Reason("the connection to " + peer_ + " is lost", errno));
    auto left = static_cast<size_t>(sent);
    for (iovec& part : parts) {
      const size_t taken = std::min(left, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
    }
  }
  return absl::OkStatus();
}

absl::Status Connection::Receive() {
  std::array<char, kPiece> piece;
  ssize_t got = 0;
  do {
    got = recv(fd(), piece.data(), piece.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) return absl::DeadlineExceededError(peer_ + " does not answer");
  if (got < 0)
    return absl::UnavailableError(Reason("the connection to " + peer_ + " is lost", errno));
  if (got == 0) return absl::UnavailableError(peer_ + " has closed the connection");
  frames_.Append({piece.data(), static_cast<size_t>(got)});
  return absl::OkStatus();
}

absl::StatusOr<Frame> Connection::Await() {
  for (;;) {
    ASSIGN_OR_RETURN(std::optional<Frame> frame, Next());
    if (frame) return *std::move(frame);
    RETURN_IF_ERROR(Receive());
  }
}

void Connection::SetPatience(double seconds) {
  timeval patience{};
  patience.tv_sec = static_cast<time_t>(seconds);
  patience.tv_usec = static_cast<suseconds_t>(std::fmod(seconds, 1.0) * 1e6);
  setsockopt(fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

bool Connection::Silent() const {
  char byte = 0;
  return recv(fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

absl::StatusOr<Descriptor> ListenForNodes(const std::string& address, bool anywhere) {
  ASSIGN_OR_RETURN(const Resolved resolved, Resolved::Of(address, /*listen=*/true));
  RETURN_IF_ERROR(CheckReach(address, resolved, anywhere));
  int error = 0;
  for (const addrinfo* at = resolved.first(); at != nullptr; at = at->ai_next) {
    Descriptor socket(
        ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    const int on = 1;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        listen(socket.get(), SOMAXCONN) == 0) {
      return socket;
    }
    error = errno;
  }
  return absl::FailedPreconditionError(
      Reason("--leader-address " + address + ": cannot listen there", error));
}

absl::StatusOr<std::unique_ptr<Connection>> ConnectToLeader(const std::string& address,
                                                            bool anywhere) {
  ASSIGN_OR_RETURN(const Resolved resolved, Resolved::Of(address, /*listen=*/false));
  RETURN_IF_ERROR(CheckReach(address, resolved, anywhere));
  int error = 0;
  for (const addrinfo* at = resolved.first(); at != nullptr; at = at->ai_next) {
    Descriptor socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, at->ai_protocol));
    error = socket.get() < 0 ? errno : ConnectSocket(socket.get(), *at);
    if (error == 0) return std::make_unique<Connection>(std::move(socket));
  }
  return absl::UnavailableError(Reason(address, error));
}

}  // namespace quire

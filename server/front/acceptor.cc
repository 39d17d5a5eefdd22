// Sockets by hand: everything gRPC's listener does for us otherwise, without its trap.
#include "server/front/acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/front/listen_address.h"

namespace quire {
namespace {

constexpr int kBacklog = 1024;
// The kernel would hold up to 4 MB for a peer that never reads.
constexpr int kSendBufferBytes = 256 << 10;
// The socket counts as writable only below this much unsent data, so that what waits, waits with
// us.
constexpr int kNotSentLowWaterBytes = 128 << 10;
// A peer that leaves sent data unacknowledged, or its receive window shut, for so long is gone. The
// library cannot end a call while a write to its socket is blocked.
constexpr int kUserTimeoutMs = 30'000;
// Descriptors kept for everything that is not a connection: files, pipes, the admin port.
constexpr int kReservedDescriptors = 64;
// How long to hold back when the kernel refuses for lack of memory or descriptors.
constexpr int kBackOffMs = 20;

void SetOption(int fd, int level, int option, int value) {
  // A socket without the option is still a socket.
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

void SetUp(int fd, bool tcp) {
  SetOption(fd, SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
  if (!tcp) return;
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kNotSentLowWaterBytes);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

// Adopts a socket as a listener of ours: non-blocking, with a queue that a burst of clients fits
// into.
absl::Status MakeListener(int fd, const std::string& name) {
  if (fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && listen(fd, kBacklog) == 0) return absl::OkStatus();
  return absl::UnavailableError("cannot listen on " + name + ": " + std::strerror(errno));
}

absl::StatusOr<int> ListenLoopback(const std::string& host, int port) {
  if (!IsLoopback(host)) {
    return absl::InvalidArgumentError(
        "--host " + host +
        " is reachable from outside and this port has no encryption; listen on 127.0.0.1 or on "
        "--uds and put a TLS proxy in front");
  }
  return ListenTcp(host, port, "--port");
}

absl::StatusOr<int> ListenUnix(const std::string& path) {
  RETURN_IF_ERROR(CheckUnixSocketFree(path));
  (void)unlink(path.c_str());  // a stale socket at most
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // Until listen nobody can connect, so the mode is right before it matters.
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), 0700) != 0) {
    const std::string why = std::strerror(errno);
    if (fd >= 0) close(fd);
    return absl::UnavailableError("cannot listen on " + path + ": " + why);
  }
  return fd;
}

// What the process's descriptor limit leaves for connections.
int ConnectionCap(int wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const auto allowed = static_cast<int64_t>(limit.rlim_cur) - kReservedDescriptors;
  return static_cast<int>(std::clamp<int64_t>(allowed, 1, wanted));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const Options& options) {
  const bool tcp = options.uds.empty();
  ASSIGN_OR_RETURN(const int fd,
                   tcp ? ListenLoopback(options.host, options.port) : ListenUnix(options.uds));
  Options capped = options;
  capped.max_connections = ConnectionCap(options.max_connections);
  std::unique_ptr<Acceptor> acceptor(new Acceptor(fd, capped));
  RETURN_IF_ERROR(MakeListener(fd, tcp ? options.host : options.uds));
  if (tcp) acceptor->port_ = BoundPort(fd);
  struct stat info {};
  if (!tcp && lstat(options.uds.c_str(), &info) == 0) acceptor->uds_inode_ = info.st_ino;
  return acceptor;
}

Acceptor::Acceptor(int fd, const Options& options)
    : options_(options),
      connections_({options.max_connections, options.max_calls, options.max_calls_uds}),
      fd_(fd),
      stop_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_fd_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {}

Acceptor::~Acceptor() {
  Stop();
  close(stop_fd_);
}

void Acceptor::Start(Deliver deliver, std::function<void()> refused) {
  deliver_ = std::move(deliver);
  refused_ = std::move(refused);
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    (void)eventfd_write(stop_fd_, 1);
    thread_.join();
  }
  if (fd_ < 0) return;
  close(fd_);
  fd_ = -1;
  if (spare_fd_ >= 0) close(spare_fd_);
  spare_fd_ = -1;
  // Only our own socket: somebody may have replaced it.
  struct stat info {};
  if (uds_inode_ != 0 && lstat(options_.uds.c_str(), &info) == 0 && info.st_ino == uds_inode_) {
    (void)unlink(options_.uds.c_str());
  }
}

bool Acceptor::Stopping() {
  pollfd stop{stop_fd_, POLLIN, 0};
  return poll(&stop, 1, 0) > 0;
}

void Acceptor::WaitForStop(int milliseconds) {
  pollfd stop{stop_fd_, POLLIN, 0};
  (void)poll(&stop, 1, milliseconds);
}

void Acceptor::Run() {
  while (!Stopping()) {
    pollfd fds[2] = {{fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) WaitForStop(kBackOffMs);
    while (!Stopping() && AcceptOne()) {
    }
  }
}

bool Acceptor::AcceptOne() {
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) {
    if (!connections_.Add(fd)) {
      close(fd);
      NoteRefusal("as many are open as may be");
      return true;
    }
    SetUp(fd, options_.uds.empty());
    deliver_(fd);
    return true;
  }
  switch (errno) {
    case EAGAIN: return false;
    case EMFILE:
    case ENFILE: RefuseOne(); return true;
    case ENOBUFS:
    case ENOMEM: WaitForStop(kBackOffMs); return true;
    default: return true;  // this one connection is gone: EINTR, ECONNABORTED, network errors
  }
}

void Acceptor::NoteRefusal(const char* why) {
  refused_();
  if (const int64_t count = refusals_.Count(SteadyNowNs()); count > 0) {
    Log(Severity::kWarning, "connections refused",
        {{"reason", why}, {"count", count}, {"limit", options_.max_connections}});
  }
}

void Acceptor::RefuseOne() {
  if (spare_fd_ >= 0) {
    close(spare_fd_);
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
    spare_fd_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) NoteRefusal("out of file descriptors");
    if (spare_fd_ >= 0) return;
  }
  WaitForStop(kBackOffMs);
  spare_fd_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

}  // namespace quire

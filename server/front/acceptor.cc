// Replaces gRPC's listener, without its trap.
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
// Without it the kernel holds up to 4 MB for a peer that never reads.
constexpr int kSendBufferBytes = 256 << 10;
// The socket is writable only below this amount of unsent data, so that output waits in our
// buffers, which are bounded.
constexpr int kNotSentLowWaterBytes = 128 << 10;
// After this time without acknowledgement, or with a closed receive window, the kernel drops the
// peer. The library cannot end a call while a write to its socket is blocked.
constexpr int kUserTimeoutMs = 30'000;
// Descriptors reserved for files, pipes and the admin port.
constexpr int kReservedDescriptors = 64;
// Pause after the kernel refuses for lack of memory or descriptors.
constexpr int kBackOffMs = 20;

void SetOption(int fd, int level, int option, int value) {
  // The socket works without the option too.
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

void SetUp(int fd, bool tcp) {
  SetOption(fd, SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
  if (!tcp) return;
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kNotSentLowWaterBytes);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

// Makes the socket a listener: non-blocking, with a queue long enough for a burst of clients.
absl::Status MakeListener(int fd, const std::string& name) {
  if (fcntl(fd, F_SETFL, O_NONBLOCK) == 0 && listen(fd, kBacklog) == 0) return absl::OkStatus();
  return absl::UnavailableError("cannot listen on " + name + ": " + std::strerror(errno));
}

absl::StatusOr<int> ListenOnTcp(const Acceptor::Options& options) {
  if (!options.any_address && !IsLoopback(options.host)) {
    return absl::InvalidArgumentError(PlaintextRefusal(options.host));
  }
  return ListenTcp(options.host, options.port, "--port");
}

absl::StatusOr<int> ListenUnix(const std::string& path) {
  RETURN_IF_ERROR(CheckUnixSocketFree(path));
  (void)unlink(path.c_str());  // only a stale socket can exist
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto refused = [&] {
    const std::string why = std::strerror(errno);
    if (fd >= 0) close(fd);
    return absl::UnavailableError("cannot listen on " + path + ": " + why);
  };
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return refused();
  }
  // Clients cannot connect before listen, so the mode is set in time.
  if (chmod(path.c_str(), 0700) != 0) {
    const absl::Status why = refused();
    (void)unlink(path.c_str());
    return why;
  }
  return fd;
}

// The number of connections that the process's descriptor limit allows.
int ConnectionCap(int wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const auto allowed = static_cast<int64_t>(limit.rlim_cur) - kReservedDescriptors;
  return static_cast<int>(std::clamp<int64_t>(allowed, 1, wanted));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Listen(const Options& options) {
  const bool tcp = options.uds.empty();
  ASSIGN_OR_RETURN(const int fd, tcp ? ListenOnTcp(options) : ListenUnix(options.uds));
  Options capped = options;
  capped.max_connections = ConnectionCap(options.max_connections);
  std::unique_ptr<Acceptor> acceptor(new Acceptor(fd, capped));
  // From here on the acceptor's end removes the socket.
  struct stat info {};
  if (!tcp && lstat(options.uds.c_str(), &info) == 0) acceptor->uds_inode_ = info.st_ino;
  // Without it the accept loop could not be ended.
  if (acceptor->stop_fd_ < 0) return absl::ErrnoToStatus(errno, "eventfd");
  RETURN_IF_ERROR(MakeListener(fd, tcp ? options.host : options.uds));
  if (tcp) {
    ASSIGN_OR_RETURN(acceptor->port_, BoundPort(fd, options.host));
  }
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
  // Removes only our own socket: another process may have replaced it.
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
      NoteRefusal("the limit of open connections is reached");
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
    default: return true;  // only this connection is lost: EINTR, ECONNABORTED, network errors
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

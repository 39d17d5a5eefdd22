// Descriptors are gRPC's to close, so everything here is looked at twice before it is touched.
#include "server/call/connection_table.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>

#include "engine/base/clock.h"
#include "engine/base/log.h"

namespace quire {
namespace {

constexpr char kResets[] = "it opens and resets calls faster than they can end";

ino_t InodeOf(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

// The peer's TCP port, 0 when the descriptor is no connected TCP socket.
int PeerPort(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return 0;
}

}  // namespace

ConnectionTable::ConnectionTable(const Limits& limits) : limits_(limits) {}

bool ConnectionTable::Add(int fd) {
  const auto at = static_cast<size_t>(fd);
  const int port = PeerPort(fd);
  std::lock_guard lock(mutex_);
  if (at >= inode_by_fd_.size()) inode_by_fd_.resize(at + 1, 0);
  // The kernel gives a number again only after its last owner is closed.
  if (inode_by_fd_[at] == 0) ++tracked_;
  inode_by_fd_[at] = InodeOf(fd);
  fd_by_port_[static_cast<size_t>(port)].store(fd + 1, std::memory_order_relaxed);
  return HasRoom();
}

bool ConnectionTable::HasRoom() {
  if (tracked_ <= limits_.connections) return true;
  for (size_t fd = 0; fd < inode_by_fd_.size(); ++fd) {
    if (inode_by_fd_[fd] == 0 || InodeOf(static_cast<int>(fd)) == inode_by_fd_[fd]) continue;
    inode_by_fd_[fd] = 0;
    --tracked_;
  }
  return tracked_ <= limits_.connections;
}

int ConnectionTable::PortOf(const std::string& peer) {
  if (peer.rfind("ipv", 0) != 0) return 0;
  const size_t colon = peer.rfind(':');
  return static_cast<int>(std::strtol(peer.c_str() + colon + 1, nullptr, 10)) & 0xFFFF;
}

void ConnectionTable::CallOpened(int port) {
  const int limit = port == 0 ? limits_.calls_without_port : limits_.calls;
  const int open = open_calls_[static_cast<size_t>(port)].fetch_add(1, std::memory_order_relaxed);
  // Only the call that passes the limit, so that a flood does not also hammer the lock.
  if (limit == 0 || open != limit) return;
  if (port == 0) return CutAll(kResets);
  Cut(port, kResets);
}

void ConnectionTable::CallClosed(int port) {
  open_calls_[static_cast<size_t>(port)].fetch_sub(1, std::memory_order_relaxed);
}

void ConnectionTable::Cut(int port, const char* reason) {
  if (port == 0) return;
  const int fd = fd_by_port_[static_cast<size_t>(port)].load(std::memory_order_relaxed) - 1;
  if (fd < 0 || PeerPort(fd) != port) return;
  if (const int64_t count = cuts_.Count(SteadyNowNs()); count > 0) {
    Log(Severity::kWarning, "connections cut",
        {{"reason", reason}, {"last_peer_port", port}, {"count", count}});
  }
  (void)shutdown(fd, SHUT_RDWR);
}

void ConnectionTable::CutAll(const char* reason) {
  int64_t cut = 0;
  {
    std::lock_guard lock(mutex_);
    for (size_t at = 0; at < inode_by_fd_.size(); ++at) {
      const int fd = static_cast<int>(at);
      if (inode_by_fd_[at] == 0 || InodeOf(fd) != inode_by_fd_[at]) continue;
      if (shutdown(fd, SHUT_RDWR) == 0) ++cut;
    }
  }
  if (cut > 0) {
    Log(Severity::kWarning, "all connections cut", {{"reason", reason}, {"connections", cut}});
  }
}

void ConnectionTable::SetCork(int port, bool corked) {
  const int fd = fd_by_port_[static_cast<size_t>(port)].load(std::memory_order_relaxed) - 1;
  // Should the descriptor be another socket's by now, that one is corked for a moment: no harm.
  const int value = corked ? 1 : 0;
  if (fd >= 0) (void)setsockopt(fd, IPPROTO_TCP, TCP_CORK, &value, sizeof(value));
}

}  // namespace quire

// Descriptors are gRPC's to close, so everything here is looked at twice before it is touched.
#include "server/call/connection_table.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_replace.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"

namespace quire {
namespace {

constexpr char kResets[] = "it opens and resets calls faster than they can end";

ino_t InodeOf(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

// "10.0.0.7:4711" or "[fe80::1]:4711"; empty when the descriptor is no connected TCP socket. IPv4
// addresses that an IPv6 socket accepts are written as IPv4, as gRPC does.
std::string PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char text[INET6_ADDRSTRLEN] = {};
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  if (address.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  const std::string port = ":" + std::to_string(ntohs(v6.sin6_port));
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof text);
    return text + port;
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  // gRPC escapes the percent sign before the scope of a link-local address.
  const std::string scope = v6.sin6_scope_id == 0 ? "" : "%25" + std::to_string(v6.sin6_scope_id);
  return "[" + (text + scope) + "]" + port;
}

}  // namespace

ConnectionTable::ConnectionTable(const Limits& limits) : limits_(limits) {}

bool ConnectionTable::Add(int fd) {
  const auto at = static_cast<size_t>(fd);
  NotePeer(fd);
  std::lock_guard lock(mutex_);
  if (at >= inode_by_fd_.size()) inode_by_fd_.resize(at + 1, 0);
  // The kernel gives a number again only after its last owner is closed.
  if (inode_by_fd_[at] == 0) ++tracked_;
  inode_by_fd_[at] = InodeOf(fd);
  return HasRoom();
}

void ConnectionTable::NotePeer(int fd) {
  const auto at = static_cast<size_t>(fd);
  std::string peer = PeerOf(fd);
  std::lock_guard lock(peers_mutex_);
  if (at >= peer_by_fd_.size()) peer_by_fd_.resize(at + 1);
  const auto last = fd_by_peer_.find(peer_by_fd_[at]);
  if (last != fd_by_peer_.end() && last->second == fd) fd_by_peer_.erase(last);
  if (!peer.empty() && fd + 1 < kSlots) fd_by_peer_[peer] = fd;
  peer_by_fd_[at] = std::move(peer);
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

int ConnectionTable::SlotOf(const std::string& peer) const {
  if (!peer.starts_with("ipv")) return 0;
  // gRPC escapes the brackets of an IPv6 address.
  const std::string name =
      absl::StrReplaceAll(peer.substr(peer.find(':') + 1), {{"%5B", "["}, {"%5D", "]"}});
  std::lock_guard lock(peers_mutex_);
  const auto found = fd_by_peer_.find(name);
  return found == fd_by_peer_.end() ? 0 : found->second + 1;
}

void ConnectionTable::CallOpened(int slot) {
  const int limit = slot == 0 ? limits_.calls_without_slot : limits_.calls;
  const int open = open_calls_[static_cast<size_t>(slot)].fetch_add(1, std::memory_order_relaxed);
  // Only the call that passes the limit, so that a flood does not also hammer the lock.
  if (limit == 0 || open != limit) return;
  if (slot == 0) return CutAll(kResets);
  Cut(slot, kResets);
}

void ConnectionTable::CallClosed(int slot) {
  open_calls_[static_cast<size_t>(slot)].fetch_sub(1, std::memory_order_relaxed);
}

int ConnectionTable::open_calls() const {
  int open = 0;
  for (const std::atomic<int32_t>& calls : open_calls_) {
    open += calls.load(std::memory_order_relaxed);
  }
  return open;
}

void ConnectionTable::Cut(int slot, const char* reason) {
  if (slot == 0) return;
  const int fd = slot - 1;
  const auto at = static_cast<size_t>(fd);
  std::string peer;
  {
    std::lock_guard lock(mutex_);
    if (InodeOf(fd) != inode_by_fd_[at]) return;  // closed already
    peer = PeerOf(fd);
    (void)shutdown(fd, SHUT_RDWR);
  }
  if (const int64_t count = cuts_.Count(SteadyNowNs()); count > 0) {
    Log(Severity::kWarning, "connections cut",
        {{"reason", reason}, {"last_peer", peer}, {"count", count}});
  }
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

void ConnectionTable::SetCork(int slot, bool corked) {
  const int fd = slot - 1;
  // Should the descriptor be another socket's by now, that one is corked for a moment: no harm.
  const int value = corked ? 1 : 0;
  if (fd >= 0) (void)setsockopt(fd, IPPROTO_TCP, TCP_CORK, &value, sizeof(value));
}

}  // namespace quire

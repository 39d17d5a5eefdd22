// Non-blocking sockets and poll, so that no peer can hold a diagnosis up.
#include "clients/connect/tcp_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace quire::connect {

TcpProbe::TcpProbe(const HostPort& address, std::chrono::milliseconds limit)
    : deadline_(std::chrono::steady_clock::now() + limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &list);
  if (error != 0) {
    failing_ = "cannot find the host " + address.host + ": " + gai_strerror(error);
    return;
  }
  int reason = 0;
  for (const addrinfo* next = list; next != nullptr && fd_ < 0; next = next->ai_next) {
    if (!Connect(next->ai_addr, next->ai_addrlen, next->ai_family)) reason = errno;
  }
  freeaddrinfo(list);
  if (fd_ >= 0) return;
  failing_ = address.host + ":" + address.port + " accepts no connections: " + strerror(reason);
}

TcpProbe::~TcpProbe() {
  if (fd_ >= 0) close(fd_);
}

bool TcpProbe::Connect(const void* address, unsigned size, int family) {
  fd_ = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) return false;
  int error = ::connect(fd_, static_cast<const sockaddr*>(address), size) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    socklen_t length = sizeof error;
    error = Wait(/*to_write=*/true) ? 0 : ETIMEDOUT;
    if (error == 0) getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error == 0) return true;
  close(fd_);
  fd_ = -1;
  errno = error;
  return false;
}

bool TcpProbe::Wait(bool to_write) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline_ - std::chrono::steady_clock::now());
  pollfd ready{fd_, static_cast<short>(to_write ? POLLOUT : POLLIN), 0};
  return poll(&ready, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) > 0;
}

}  // namespace quire::connect

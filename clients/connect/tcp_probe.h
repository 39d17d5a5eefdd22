// TcpProbe: one TCP connection with a deadline, for a diagnosis.
#pragma once

#include <chrono>
#include <string>

#include "clients/connect/endpoint.h"

namespace quire::connect {

class TcpProbe {
 public:
  // Connects to the first of the host's addresses that accepts, within `limit`; failing() says why
  // not. The deadline holds for everything after it too.
  TcpProbe(const HostPort& address, std::chrono::milliseconds limit);
  ~TcpProbe();
  TcpProbe(const TcpProbe&) = delete;
  TcpProbe& operator=(const TcpProbe&) = delete;

  int fd() const { return fd_; }  // non-blocking; negative: not connected
  // "cannot find the host NAME: ..." or "HOST:PORT does not accept connections: ...".
  const std::string& failing() const { return failing_; }
  // Waits until the socket can be read (or written); false when the time is over.
  bool Wait(bool to_write);

 private:
  bool Connect(const void* address, unsigned size, int family);

  const std::chrono::steady_clock::time_point deadline_;
  int fd_ = -1;
  std::string failing_;
};

}  // namespace quire::connect

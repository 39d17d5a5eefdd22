// Frames (RFC 9113 section 4) and header blocks of literals without indexing (RFC 7541
// section 6.2.2).
#include "tests/server/h2_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace quire {
namespace {

enum : uint8_t { kData = 0, kHeaders = 1, kRstStream = 3, kSettings = 4, kWindowUpdate = 8 };
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kEndHeaders = 4;
constexpr uint32_t kCancel = 8;

std::string Big32(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// An HPACK integer with a 7-bit prefix.
std::string Length(size_t value) {
  if (value < 127) return {static_cast<char>(value)};
  std::string out = {127};
  value -= 127;
  while (value >= 128) {
    out += static_cast<char>(value % 128 + 128);
    value /= 128;
  }
  return out + static_cast<char>(value);
}

std::string Literal(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + Length(name.size()) + name + Length(value.size()) + value;
}

}  // namespace

H2Client::H2Client(int port, uint32_t initial_window) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd_);
    fd_ = -1;
    return;
  }
  fcntl(fd_, F_SETFL, O_NONBLOCK);
  out_ = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  AddFrame(kSettings, 0, 0, std::string("\0\4", 2) + Big32(initial_window));
}

H2Client::~H2Client() {
  if (fd_ >= 0) close(fd_);
}

void H2Client::AddFrame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  out_ += Big32(static_cast<uint32_t>(payload.size())).substr(1);
  out_ += static_cast<char>(type);
  out_ += static_cast<char>(flags);
  out_ += Big32(stream);
  out_ += payload;
}

uint32_t H2Client::AddHeaders(const std::string& path,
                              const std::vector<std::pair<std::string, std::string>>& extra) {
  const uint32_t stream = next_stream_;
  next_stream_ += 2;
  // 0x83 and 0x86 are :method POST and :scheme http of the static table.
  std::string block = "\x83\x86" + Literal(":path", path) + Literal(":authority", "localhost") +
                      Literal("te", "trailers") + Literal("content-type", "application/grpc");
  for (const auto& [name, value] : extra) block += Literal(name, value);
  AddFrame(kHeaders, kEndHeaders, stream, block);
  return stream;
}

void H2Client::AddMessage(uint32_t stream, const std::string& message) {
  // gRPC's prefix: not compressed, length.
  AddFrame(kData, kEndStream, stream,
           std::string(1, '\0') + Big32(static_cast<uint32_t>(message.size())) + message);
}

void H2Client::AddReset(uint32_t stream) { AddFrame(kRstStream, 0, stream, Big32(kCancel)); }

void H2Client::AddWideWindow() { AddFrame(kWindowUpdate, 0, 0, Big32(kWidestWindow - 65535)); }

bool H2Client::DrainOnce() {
  char buffer[65536];
  for (;;) {
    const ssize_t size = recv(fd_, buffer, sizeof(buffer), 0);
    if (size > 0) continue;
    return size < 0 && (errno == EAGAIN || errno == EINTR);
  }
}

bool H2Client::Send(bool drain) {
  size_t sent = 0;
  while (sent < out_.size()) {
    pollfd ready{fd_, static_cast<short>(POLLOUT | (drain ? POLLIN : 0)), 0};
    if (poll(&ready, 1, 5000) <= 0) return false;
    if (drain && (ready.revents & POLLIN) != 0 && !DrainOnce()) return false;
    if ((ready.revents & (POLLERR | POLLHUP)) != 0) return false;
    if ((ready.revents & POLLOUT) == 0) continue;
    const ssize_t size = send(fd_, out_.data() + sent, out_.size() - sent, MSG_NOSIGNAL);
    if (size > 0) sent += static_cast<size_t>(size);
    if (size < 0 && errno != EAGAIN && errno != EINTR) return false;
  }
  out_.clear();
  return true;
}

bool H2Client::Read(int64_t bytes) {
  char buffer[65536];
  while (bytes > 0) {
    pollfd ready{fd_, POLLIN, 0};
    if (poll(&ready, 1, 10'000) <= 0) return true;
    const ssize_t size = recv(fd_, buffer, sizeof(buffer), 0);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (size > 0) bytes -= size;
  }
  return true;
}

std::string H2Client::ReadUntil(const std::string& text) {
  std::string data;
  char buffer[65536];
  pollfd ready{fd_, POLLIN, 0};
  while (data.find(text) == std::string::npos && poll(&ready, 1, 10'000) > 0) {
    const ssize_t size = recv(fd_, buffer, sizeof(buffer), 0);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (size > 0) data.append(buffer, static_cast<size_t>(size));
  }
  return data;
}

void H2Client::Vanish() {
  const linger now{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(fd_);
  fd_ = -1;
}

}  // namespace quire

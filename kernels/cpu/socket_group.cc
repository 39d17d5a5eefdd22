// A connection for each pair of ranks. An exchange sends and receives on all of them at once, so
// that no two ranks wait for each other with full buffers.
#include "kernels/cpu/socket_group.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "kernels/check.h"

namespace quire::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// For all connections of a rank, from the moment when all ranks listen.
constexpr std::chrono::seconds kJoinTime{30};
// For the introduction behind one accepted connection.
constexpr int kIntroductionMs = 2000;

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

using Token = std::array<char, 16>;

// The first bytes on a connection: the listener's token, which only ranks of this group know, and
// the rank that connects.
struct Introduction {
  Token token;
  int32_t rank = 0;
};

std::string Failed(const std::string& what) { return what + ": " + std::strerror(errno); }

int MillisecondsUntil(Clock::time_point time) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(time - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

struct Addresses {
  explicit Addresses(const std::string& host, const std::string& port) {
    const addrinfo hints{.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host.c_str(), port.c_str(), &hints, &first) != 0) first = nullptr;
  }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  ~Addresses() {
    if (first != nullptr) freeaddrinfo(first);
  }
  addrinfo* first = nullptr;
};

// Listens at a free port of `host`.
Socket Listen(const std::string& host) {
  const Addresses at(host, "0");
  if (at.first == nullptr) return Socket();
  Socket socket(::socket(at.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool listens = socket.fd() >= 0 &&
                       bind(socket.fd(), at.first->ai_addr, at.first->ai_addrlen) == 0 &&
                       listen(socket.fd(), SOMAXCONN) == 0;
  return listens ? std::move(socket) : Socket();
}

std::string PortOf(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXSERV> port{};
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(socket.fd(), at, &length) != 0 ||
      getnameinfo(at, length, nullptr, 0, port.data(), port.size(), NI_NUMERICSERV) != 0) {
    return "";
  }
  return port.data();
}

// Where a rank listens: its token in digits, its port and its host.
struct Place {
  Token token{};
  std::string port;
  std::string host;

  std::string Text() const { return std::string(token.data(), token.size()) + port + " " + host; }
  // Empty host: not a place.
  static Place Of(const std::string& text) {
    Place place;
    const size_t space = text.find(' ', sizeof(Token));
    if (text.size() < sizeof(Token) || space == std::string::npos) return place;
    std::memcpy(place.token.data(), text.data(), sizeof(Token));
    place.port = text.substr(sizeof(Token), space - sizeof(Token));
    place.host = text.substr(space + 1);
    return place;
  }
};

bool AwaitEvent(int fd, int16_t events, int milliseconds) {
  pollfd ready{.fd = fd, .events = events, .revents = 0};
  int got = 0;
  do {
    got = poll(&ready, 1, milliseconds);
  } while (got < 0 && errno == EINTR);
  return got > 0;
}

void SendAtOnce(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Socket Connect(const Place& place, Clock::time_point until) {
  const Addresses to(place.host, place.port);
  if (to.first == nullptr) {
    errno = EADDRNOTAVAIL;
    return Socket();
  }
  Socket socket(::socket(to.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) return Socket();
  if (connect(socket.fd(), to.first->ai_addr, to.first->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return Socket();
    if (!AwaitEvent(socket.fd(), POLLOUT, MillisecondsUntil(until))) {
      errno = ETIMEDOUT;
      return Socket();
    }
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    errno = error;
    if (error != 0) return Socket();
  }
  SendAtOnce(socket);
  return socket;
}

class SocketGroup final : public RankGroup {
 public:
  explicit SocketGroup(const RankPlace& place)
      : RankGroup(place.rank, place.ranks),
        exchange_(*place.exchange),
        peers_(static_cast<size_t>(place.ranks)),
        given_(static_cast<size_t>(place.ranks)) {
    for (Bytes& bytes : mine_) bytes = Allocate();
    for (int32_t r = 0; r < ranks(); ++r) {
      if (r != rank()) peers_[r].bytes = Allocate();
    }
  }

  // Connects to the ranks below and accepts those above. Empty, or why it failed.
  std::string Join(const Socket& listener, const Token& token,
                   const std::vector<std::string>& places) {
    const Clock::time_point until = Clock::now() + kJoinTime;
    for (int32_t r = 0; r < ranks(); ++r) peers_[r].name = NameOf(r, Place::Of(places[r]));
    for (int32_t r = 0; r < rank(); ++r) {
      const Place place = Place::Of(places[r]);
      peers_[r].socket = Connect(place, until);
      if (peers_[r].socket.fd() < 0) return Failed("connecting to " + peers_[r].name);
      const Introduction me{place.token, rank()};
      // Fits any send buffer.
      if (send(peers_[r].socket.fd(), &me, sizeof me, MSG_NOSIGNAL) != sizeof me) {
        return Failed("greeting " + peers_[r].name);
      }
    }
    for (int32_t missing = ranks() - 1 - rank(); missing > 0;) {
      if (!AwaitEvent(listener.fd(), POLLIN, MillisecondsUntil(until))) {
        return "no connection from " + FirstMissing() + " in time";
      }
      missing -= Accept(listener, token) ? 1 : 0;
    }
    return "";
  }

  std::byte* Mine() override { return mine_[turn_].get(); }

  std::span<const std::byte* const> Exchange(size_t bytes) override {
    CHECK_LE(bytes, kMaxBytes);
    for (Peer& peer : peers_) peer.sent = peer.received = 0;
    while (Pass(bytes)) AwaitPeers(bytes);
    for (int32_t r = 0; r < ranks(); ++r) given_[r] = peers_[r].bytes.get();
    given_[rank()] = mine_[turn_].get();
    turn_ = 1 - turn_;
    return given_;
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  using Bytes = std::unique_ptr<std::byte, Free>;
  struct Peer {
    std::string name;
    Socket socket;
    Bytes bytes;  // received
    size_t sent = 0;
    size_t received = 0;
  };

  static Bytes Allocate() {
    Bytes bytes(static_cast<std::byte*>(std::aligned_alloc(64, kMaxBytes)));
    CHECK(bytes != nullptr);
    return bytes;
  }

  static std::string NameOf(int32_t rank, const Place& place) {
    return "rank " + std::to_string(rank) + " (" + place.host + " port " + place.port + ")";
  }

  std::string FirstMissing() const {
    for (int32_t r = rank() + 1; r < ranks(); ++r) {
      if (peers_[r].socket.fd() < 0) return peers_[r].name;
    }
    return "";
  }

  // True if a rank above this one has connected; any other connection is dropped.
  bool Accept(const Socket& listener, const Token& token) {
    Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    Introduction who;
    const bool introduced = socket.fd() >= 0 && AwaitEvent(socket.fd(), POLLIN, kIntroductionMs) &&
                            recv(socket.fd(), &who, sizeof who, 0) == sizeof who;
    if (!introduced || who.token != token || who.rank <= rank() || who.rank >= ranks()) {
      return false;
    }
    SendAtOnce(socket);
    const bool awaited = peers_[who.rank].socket.fd() < 0;
    if (awaited) peers_[who.rank].socket = std::move(socket);
    return awaited;
  }

  // Sends and receives what passes without waiting. False once all bytes have passed.
  bool Pass(size_t bytes) {
    bool left = false;
    for (int32_t r = 0; r < ranks(); ++r) {
      if (r == rank()) continue;
      Peer& peer = peers_[r];
      if (peer.sent < bytes) {
        Count(peer, peer.sent,
              send(peer.socket.fd(), mine_[turn_].get() + peer.sent, bytes - peer.sent,
                   MSG_NOSIGNAL));
      }
      if (peer.received < bytes) {
        Count(peer, peer.received,
              recv(peer.socket.fd(), peer.bytes.get() + peer.received, bytes - peer.received, 0));
      }
      left |= peer.sent < bytes || peer.received < bytes;
    }
    return left;
  }

  void Count(const Peer& peer, size_t& passed, ssize_t count) {
    if (count > 0) {
      passed += static_cast<size_t>(count);
    } else if (count == 0) {
      exchange_.Lost(peer.name + " has closed its connection");
    } else if (errno != EAGAIN && errno != EINTR) {
      exchange_.Lost(Failed("the connection to " + peer.name));
    }
  }

  void AwaitPeers(size_t bytes) {
    fds_.clear();
    for (const Peer& peer : peers_) {
      if (peer.socket.fd() < 0) continue;
      const int events = (peer.sent < bytes ? POLLOUT : 0) | (peer.received < bytes ? POLLIN : 0);
      if (events == 0) continue;
      fds_.push_back(
          {.fd = peer.socket.fd(), .events = static_cast<int16_t>(events), .revents = 0});
    }
    poll(fds_.data(), fds_.size(), -1);
  }

  RankExchange& exchange_;
  std::vector<Peer> peers_;    // by rank; this rank's own is empty
  std::array<Bytes, 2> mine_;  // alternate, so that Mine never overwrites given bytes
  int32_t turn_ = 0;
  std::vector<const std::byte*> given_;
  std::vector<pollfd> fds_;
};

}  // namespace

// As in JoinProcesses, a rank shares "!" and a reason when it fails.
std::unique_ptr<RankGroup> JoinSockets(const RankPlace& place, std::string* why) {
  const auto failed = [&](const std::vector<std::string>& shared) {
    for (size_t r = 0; r < shared.size(); ++r) {
      if (!shared[r].starts_with('!')) continue;
      *why = "rank " + std::to_string(r) + ": " + shared[r].substr(1);
      return true;
    }
    return false;
  };
  const Socket listener = Listen(place.host);
  Place mine{.port = listener.fd() < 0 ? "" : PortOf(listener), .host = place.host};
  std::string text = "!" + Failed("listening at '" + place.host + "'");
  if (!mine.port.empty()) {
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz234567";
    std::array<unsigned char, sizeof(Token)> random{};
    CHECK_EQ(getrandom(random.data(), random.size(), 0), static_cast<ssize_t>(random.size()));
    for (size_t i = 0; i < random.size(); ++i) mine.token[i] = kLetters[random[i] % 32];
    text = mine.Text();
  }
  const std::vector<std::string> places = place.exchange->Share(text);
  const bool listening = !failed(places);
  auto group = std::make_unique<SocketGroup>(place);
  std::string fault;
  if (listening) fault = group->Join(listener, mine.token, places);
  const bool alone = failed(place.exchange->Share(fault.empty() ? "" : "!" + fault));
  if (!listening || alone) return nullptr;
  return group;
}

}  // namespace quire::cpu

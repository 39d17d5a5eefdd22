// One thread that polls the listener, the guests, the waiting connections and the relays.
#include "engine/worker/remote/leader_port.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr size_t kMaxGuests = 256;
constexpr int64_t kGreetingNs = 5'000'000'000;
// Until a missing node is worth a line, and between two lines.
constexpr int64_t kGraceNs = 1'000'000'000;
constexpr int64_t kLogNs = 5'000'000'000;
constexpr int kLookMs = 500;
constexpr size_t kMaxName = 256;
// A relay's two messages. Complete drops the request, and the connection, of a relay that has died
// before it took its connection.
constexpr char kWish = '?', kThanks = '!';

// Sends a descriptor and a text as one message.
void SendDescriptor(int socket, int fd, std::string text) {
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    Log(Severity::kError, "a relay did not get its connection", {{"reason", strerror(errno)}});
  }
}

absl::StatusOr<GivenConnection> ReceiveDescriptor(int socket, int flags) {
  std::array<char, kMaxName> text{};
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (got < 0 && errno == EINTR);
  const cmsghdr* const head = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (head == nullptr || head->cmsg_type != SCM_RIGHTS) {
    return absl::UnavailableError("the leader's port is gone");
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
  return GivenConnection{std::make_unique<Connection>(Descriptor(fd)),
                         std::string(text.data(), static_cast<size_t>(got))};
}

}  // namespace

absl::StatusOr<std::unique_ptr<LeaderPort>> LeaderPort::Start(const Options& options) {
  CHECK(options.nodes > 1 && options.ranks % options.nodes == 0);
  std::unique_ptr<LeaderPort> port(new LeaderPort(options));
  ASSIGN_OR_RETURN(port->listener_, ListenForNodes(options.address, options.key.secret()));
  for (RemoteRank& rank : port->remote_) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return absl::ResourceExhaustedError(std::string("a socket for a relay: ") + strerror(errno));
    }
    rank.port_end = Descriptor(ends[0]);
    rank.relay_end = Descriptor(ends[1]);
  }
  Log(Severity::kInfo, "listening for nodes", {{"address", options.address}});
  port->thread_ = std::thread([raw = port.get()] { raw->Run(); });
  return port;
}

LeaderPort::LeaderPort(const Options& options)
    : group_{.key = options.key,
             .nodes = options.nodes,
             .ranks = options.ranks,
             .instance = absl::BytesToHexString(GroupKey::Nonce())},
      local_ranks_(options.ranks / options.nodes),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      remote_(static_cast<size_t>(options.ranks - local_ranks_)) {}

LeaderPort::~LeaderPort() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  CHECK_EQ(write(stop_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  thread_.join();
}

void LeaderPort::AwaitNodes() {
  std::unique_lock lock(mutex_);
  awaited_ = true;
  changed_.wait(lock, [this] { return AllSeated(); });
  awaited_ = false;
}

// No group lives, so a request still there is of a relay that has died, and so is a connection on
// its way: without it the follower joins again.
bool LeaderPort::Complete() {
  const std::lock_guard lock(mutex_);
  for (RemoteRank& rank : remote_) {
    TakeWish(rank);
    rank.wanted = false;
    while (ReceiveDescriptor(rank.relay_end.get(), MSG_DONTWAIT).ok()) {
    }
  }
  awaited_ = !AllSeated();
  return !awaited_;
}

bool LeaderPort::AllSeated() const {
  return std::all_of(remote_.begin(), remote_.end(), [](const RemoteRank& rank) {
    return rank.connection != nullptr && rank.connection->Silent();
  });
}

std::string LeaderPort::host() {
  const std::lock_guard lock(mutex_);
  return host_;
}

void LeaderPort::Run() {
  while (Wait() == 0) {
    Accept();
    std::erase_if(guests_, [this](Guest& guest) { return !Greet(guest); });
    DropLost();
    GiveWanted();
    LogMissing();
  }
}

// 0 until the destructor runs.
int LeaderPort::Wait() {
  std::vector<pollfd> fds = {{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
  if (guests_.size() < kMaxGuests) {
    fds.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  }
  for (const Guest& guest : guests_) {
    fds.push_back({.fd = guest.connection->fd(), .events = POLLIN, .revents = 0});
  }
  {
    const std::lock_guard lock(mutex_);
    for (const RemoteRank& rank : remote_) {
      fds.push_back({.fd = rank.port_end.get(), .events = POLLIN, .revents = 0});
      if (rank.connection == nullptr) continue;
      fds.push_back({.fd = rank.connection->fd(), .events = POLLIN, .revents = 0});
    }
  }
  poll(fds.data(), fds.size(), kLookMs);
  return fds.front().revents;
}

void LeaderPort::Accept() {
  while (guests_.size() < kMaxGuests) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() < 0) return;
    guests_.push_back({.connection = std::make_unique<Connection>(std::move(socket)),
                       .greeting = std::make_unique<LeaderGreeting>(group_),
                       .until_ns = SteadyNowNs() + kGreetingNs});
  }
}

bool LeaderPort::Greet(Guest& guest) {
  Connection& connection = *guest.connection;
  const auto refuse = [&](const absl::Status& why) {
    Log(Severity::kWarning, "refused a node",
        {{"peer", connection.peer()}, {"reason", std::string(why.message())}});
    // A short frame on a new connection: it fits the socket's buffer.
    connection.Send(FrameKind::kRefused, std::string(why.message())).IgnoreError();
    return false;
  };
  if (SteadyNowNs() > guest.until_ns) return refuse(absl::DeadlineExceededError("it said nothing"));
  if (connection.Silent()) return true;
  if (const absl::Status got = connection.Receive(); !got.ok()) return false;
  for (;;) {
    const absl::StatusOr<std::optional<Frame>> frame = connection.Next();
    if (!frame.ok()) return refuse(frame.status());
    if (!frame->has_value()) return true;
    const absl::StatusOr<Frame> answer = guest.greeting->Take(**frame);
    if (!answer.ok()) return refuse(answer.status());
    const bool joined = guest.greeting->joined().has_value();
    if (joined) {
      if (const absl::Status vacant = CheckVacant(guest); !vacant.ok()) return refuse(vacant);
    }
    if (!connection.Send(answer->kind, answer->bytes).ok()) return false;
    if (!joined) continue;
    Seat(guest);
    return false;
  }
}

// A connection that has ended gives way; the end of a host that fell silent is noticed later.
absl::Status LeaderPort::CheckVacant(const Guest& guest) {
  const std::lock_guard lock(mutex_);
  const RemoteRank& rank = remote_[guest.greeting->rank() - local_ranks_];
  if (rank.connection == nullptr || !rank.connection->Silent()) return absl::OkStatus();
  return absl::AlreadyExistsError(rank.name + " has joined with this --node-rank already");
}

void LeaderPort::Seat(Guest& guest) {
  const int32_t index = guest.greeting->rank() - local_ranks_;
  const std::string node = "node " + std::to_string(guest.greeting->joined()->node);
  const std::lock_guard lock(mutex_);
  RemoteRank& rank = remote_[index];
  host_ = guest.connection->local_host();
  rank.name = node + " (" + guest.connection->peer() + ")";
  if (!rank.arrived) {
    Log(Severity::kInfo, "a rank of another host has joined",
        {{"rank", guest.greeting->rank()}, {"host", rank.name}});
  }
  rank.arrived = true;
  rank.connection = std::move(guest.connection);
  changed_.notify_all();
}

// A waiting connection is silent until its relay speaks: anything else is its end.
void LeaderPort::DropLost() {
  const std::lock_guard lock(mutex_);
  for (RemoteRank& rank : remote_) {
    if (rank.connection != nullptr && !rank.connection->Silent()) rank.connection.reset();
    TakeWish(rank);
  }
}

void LeaderPort::TakeWish(RemoteRank& rank) {
  char wish = 0;
  while (recv(rank.port_end.get(), &wish, 1, MSG_DONTWAIT) == 1) rank.wanted = wish == kWish;
}

void LeaderPort::GiveWanted() {
  const std::lock_guard lock(mutex_);
  for (RemoteRank& rank : remote_) {
    if (!rank.wanted || rank.connection == nullptr) continue;
    SendDescriptor(rank.port_end.get(), rank.connection->fd(), rank.name);
    rank.connection.reset();
    rank.wanted = false;
  }
}

void LeaderPort::LogMissing() {
  std::string nodes;
  {
    const std::lock_guard lock(mutex_);
    int32_t last = 0;
    for (size_t i = 0; i < remote_.size(); ++i) {
      const bool missing = remote_[i].connection == nullptr && (awaited_ || remote_[i].wanted);
      const int32_t node = static_cast<int32_t>(i) / local_ranks_ + 1;
      if (!missing || std::exchange(last, node) == node) continue;
      nodes += (nodes.empty() ? "" : ", ") + std::to_string(node);
    }
  }
  const int64_t now_ns = SteadyNowNs();
  if (nodes.empty()) {
    log_at_ns_ = now_ns + kGraceNs;
  } else if (now_ns >= log_at_ns_) {
    log_at_ns_ = now_ns + kLogNs;
    Log(Severity::kWarning, "waiting for nodes", {{"missing", nodes}});
  }
}

absl::StatusOr<GivenConnection> AskForConnection(int relay_fd) {
  for (;;) {
    if (send(relay_fd, &kWish, 1, MSG_NOSIGNAL) != 1) {
      return absl::UnavailableError("the leader's port is gone");
    }
    ASSIGN_OR_RETURN(GivenConnection given, ReceiveDescriptor(relay_fd, 0));
    // It may have ended on its way.
    if (!given.connection->Silent()) continue;
    send(relay_fd, &kThanks, 1, MSG_NOSIGNAL);
    return given;
  }
}

}  // namespace quire

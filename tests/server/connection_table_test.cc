// The connection table over real sockets: peers of several hosts may have the same port.
#include "server/call/connection_table.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace quire {
namespace {

// A TCP connection within this machine: the client's end, and the end that a server accepted.
class Connection {
 public:
  // From `address` and `port`; 0: any.
  Connection(const std::string& address, uint16_t port) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{.sin_family = AF_INET};
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    socklen_t size = sizeof at;
    getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size);
    client_ = socket(AF_INET, SOCK_STREAM, 0);
    const int one = 1;
    setsockopt(client_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in from{.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address.c_str(), &from.sin_addr);
    EXPECT_EQ(bind(client_, reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
    EXPECT_EQ(connect(client_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    getsockname(client_, reinterpret_cast<sockaddr*>(&from), &size);
    port_ = ntohs(from.sin_port);
    peer_ = "ipv4:" + address + ":" + std::to_string(port_);
    server_ = accept(listener, nullptr, nullptr);
    close(listener);
  }
  ~Connection() {
    close(client_);
    if (server_ >= 0) close(server_);
  }
  void CloseServer() {
    close(server_);
    server_ = -1;
  }
  int fd() const { return server_; }
  uint16_t port() const { return port_; }
  // As gRPC names the peer.
  const std::string& peer() const { return peer_; }
  // Whether the client sees the end of the connection.
  bool ended() const {
    char byte = 0;
    return recv(client_, &byte, 1, MSG_DONTWAIT) == 0;
  }

 private:
  int client_ = -1;
  int server_ = -1;
  uint16_t port_ = 0;
  std::string peer_;
};

TEST(ConnectionTableTest, PeersOfTwoHostsWithOnePortAreTwo) {
  ConnectionTable table({.connections = 10, .calls = 2, .calls_without_slot = 100});
  const Connection first("127.0.0.2", 0);
  const Connection second("127.0.0.3", first.port());
  ASSERT_TRUE(table.Add(first.fd()));
  ASSERT_TRUE(table.Add(second.fd()));
  const int slot = table.SlotOf(first.peer());
  const int other = table.SlotOf(second.peer());
  EXPECT_GT(slot, 0);
  EXPECT_GT(other, 0);
  EXPECT_NE(slot, other);
  // The calls of one are not counted for the other.
  for (int i = 0; i < 2; ++i) {
    table.CallOpened(slot);
    table.CallOpened(other);
  }
  EXPECT_FALSE(first.ended());
  EXPECT_FALSE(second.ended());
  table.CallOpened(slot);
  EXPECT_TRUE(first.ended());
  EXPECT_FALSE(second.ended());
  table.Cut(other, "test");
  EXPECT_TRUE(second.ended());
}

TEST(ConnectionTableTest, UnknownPeersHaveNoSlot) {
  ConnectionTable table({.connections = 10});
  const Connection connection("127.0.0.1", 0);
  EXPECT_EQ(table.SlotOf(connection.peer()), 0);  // not added
  ASSERT_TRUE(table.Add(connection.fd()));
  EXPECT_NE(table.SlotOf(connection.peer()), 0);
  for (const char* peer :
       {"", "unix:", "unix:/run/quire.sock", "ipv4:", "ipv4:10.0.0.1:1", "ipv6"}) {
    EXPECT_EQ(table.SlotOf(peer), 0) << peer;
  }
  table.Cut(0, "test");
  EXPECT_FALSE(connection.ended());
}

// The kernel gives a descriptor again: the old peer's name must not lead to the new connection, nor
// a cut of a connection that has ended to whatever has its descriptor now.
TEST(ConnectionTableTest, DescriptorsChangeHands) {
  ConnectionTable table({.connections = 10});
  Connection old("127.0.0.2", 0);
  const Connection other("127.0.0.3", 0);
  ASSERT_TRUE(table.Add(old.fd()));
  const int fd = old.fd();
  const int slot = table.SlotOf(old.peer());
  old.CloseServer();
  ASSERT_EQ(dup2(other.fd(), fd), fd);
  table.Cut(slot, "test");
  EXPECT_FALSE(other.ended());
  ASSERT_TRUE(table.Add(fd));
  EXPECT_EQ(table.SlotOf(old.peer()), 0);
  EXPECT_EQ(table.SlotOf(other.peer()), slot);
  close(fd);
}

}  // namespace
}  // namespace quire

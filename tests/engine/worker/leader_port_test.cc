// The leader's port: connections of remote ranks wait for their relays, and lost ones are replaced.
// Covers engine/worker/remote/connection.cc
#include "engine/worker/remote/leader_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "engine/worker/remote/connection.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A port that was free a moment ago.
std::string FreeAddress() {
  const auto probe = ListenForNodes("127.0.0.1:0", false);
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(probe->get(), reinterpret_cast<sockaddr*>(&address), &length);
  // The port lies behind the family, in network order.
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&address) + 2;
  return "127.0.0.1:" + std::to_string(bytes[0] * 256 + bytes[1]);
}

class LeaderPortTest : public testing::Test {
 protected:
  void SetUp() override {
    auto port = LeaderPort::Start({.address = address_, .nodes = 2, .ranks = 4});
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *std::move(port);
  }

  // The connection of a rank of node 1.
  std::unique_ptr<Connection> Join(int32_t local) {
    const FollowerGreeting::Options options{.place = {.node = 1, .nodes = 2, .local = local}};
    FollowerGreeting greeting(options);
    auto link = ConnectToLeader(address_, false);
    EXPECT_TRUE(link.ok()) << link.status();
    std::optional<Frame> frame = greeting.Hello();
    while (frame) {
      EXPECT_TRUE((*link)->Send(frame->kind, frame->bytes).ok());
      frame = *greeting.Take(*(*link)->Await());
    }
    return *std::move(link);
  }

  absl::StatusOr<GivenConnection> Ask(int32_t rank) {
    return AskForConnection(port_->relay_end(rank).get());
  }

  const std::string address_ = FreeAddress();
  std::unique_ptr<LeaderPort> port_;
};

TEST_F(LeaderPortTest, ARelayGetsTheConnectionOfItsRank) {
  const auto third = Join(1);
  const auto second = Join(0);
  port_->AwaitNodes();
  EXPECT_TRUE(port_->Complete());
  EXPECT_EQ(port_->host(), "127.0.0.1");
  EXPECT_FALSE(port_->Remote(1));
  EXPECT_TRUE(port_->Remote(2));
  for (const auto& [rank, peer] : {std::pair{2, second.get()}, {3, third.get()}}) {
    auto given = Ask(rank);
    ASSERT_TRUE(given.ok()) << given.status();
    EXPECT_THAT(given->name, StartsWith("node 1 (127.0.0.1:"));
    const std::string text = "to rank " + std::to_string(rank);
    ASSERT_TRUE(given->connection->Send(FrameKind::kMessage, text).ok());
    EXPECT_EQ(peer->Await()->bytes, text);
    ASSERT_TRUE(peer->Send(FrameKind::kMessage, "back").ok());
    EXPECT_EQ(given->connection->Await()->bytes, "back");
    EXPECT_FALSE(port_->Complete());
  }
}

TEST_F(LeaderPortTest, ARelayWaitsForANodeThatIsLate) {
  absl::StatusOr<GivenConnection> given = absl::UnavailableError("");
  std::thread relay([&] { given = Ask(2); });
  const auto link = Join(0);
  relay.join();
  EXPECT_TRUE(given.ok()) << given.status();
}

TEST_F(LeaderPortTest, ALostConnectionIsReplaced) {
  Join(0).reset();
  const auto link = Join(0);
  const auto given = Ask(2);
  ASSERT_TRUE(given.ok());
  ASSERT_TRUE(link->Send(FrameKind::kMessage, "here").ok());
  EXPECT_EQ(given->connection->Await()->bytes, "here");
  // The next relay waits for the next connection.
  absl::StatusOr<GivenConnection> next = absl::UnavailableError("");
  std::thread relay([&] { next = Ask(2); });
  const auto later = Join(0);
  relay.join();
  ASSERT_TRUE(later->Send(FrameKind::kMessage, "again").ok());
  EXPECT_EQ(next->connection->Await()->bytes, "again");
}

// A relay that died between its request and its connection leaves nothing that the next group waits
// for.
TEST_F(LeaderPortTest, AConnectionOnItsWayToADeadRelayIsDropped) {
  const auto link = Join(0), other = Join(1);
  port_->AwaitNodes();
  ASSERT_EQ(send(port_->relay_end(2).get(), "?", 1, 0), 1);
  pollfd sent{.fd = port_->relay_end(2).get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&sent, 1, 10'000), 1);
  EXPECT_FALSE(port_->Complete());
  EXPECT_TRUE(absl::IsUnavailable(link->Await().status()));  // so the follower joins again
  const auto again = Join(0);
  port_->AwaitNodes();
  EXPECT_TRUE(port_->Complete());
}

TEST_F(LeaderPortTest, TheRequestOfADeadRelayIsDropped) {
  ASSERT_EQ(send(port_->relay_end(2).get(), "?", 1, 0), 1);
  EXPECT_FALSE(port_->Complete());
  const auto link = Join(0), other = Join(1);
  port_->AwaitNodes();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(port_->Complete());  // the connection waits for a living relay
}

TEST_F(LeaderPortTest, ASecondNodeOfOneNumberIsRefused) {
  const auto link = Join(0);
  const FollowerGreeting::Options options{.place = {.node = 1, .nodes = 2, .local = 0}};
  FollowerGreeting greeting(options);
  auto second = ConnectToLeader(address_, false);
  const Frame hello = greeting.Hello();
  ASSERT_TRUE((*second)->Send(hello.kind, hello.bytes).ok());
  const Frame join = **greeting.Take(*(*second)->Await());
  ASSERT_TRUE((*second)->Send(join.kind, join.bytes).ok());
  const auto answer = (*second)->Await();
  EXPECT_EQ(answer->kind, FrameKind::kRefused);
  EXPECT_THAT(answer->bytes, HasSubstr("has joined with this --node-rank already"));
  EXPECT_TRUE(link->Silent());
}

TEST_F(LeaderPortTest, AStrangerIsToldTheReason) {
  const auto link = ConnectToLeader(address_, false);
  ASSERT_TRUE((*link)->Send(FrameKind::kPlan, "not a greeting").ok());
  const auto answer = (*link)->Await();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->kind, FrameKind::kRefused);
  EXPECT_THAT(answer->bytes, HasSubstr("another frame than hello"));
  EXPECT_TRUE(absl::IsUnavailable((*link)->Await().status()));
}

TEST(ConnectionTest, AddressesAreChecked) {
  for (const char* address : {"", "host", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "no such:1"}) {
    const absl::Status status = ListenForNodes(address, true).status();
    EXPECT_FALSE(status.ok()) << address;
    EXPECT_THAT(std::string(status.message()), StartsWith("--leader-address")) << address;
  }
  for (const char* address : {":0", "0.0.0.0:0", "[::]:0"}) {
    EXPECT_THAT(std::string(ListenForNodes(address, false).status().message()),
                HasSubstr("--group-key-file"))
        << address;
  }
  EXPECT_TRUE(ListenForNodes("localhost:0", false).ok());
  EXPECT_TRUE(ListenForNodes(":0", true).ok());
}

}  // namespace
}  // namespace quire

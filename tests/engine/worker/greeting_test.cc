// The greeting between a leader and a follower: who may join, and the reason when not.
// Covers engine/worker/remote/group_key.cc
#include "engine/worker/remote/greeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

namespace quire {
namespace {

using testing::HasSubstr;

const GroupKey kKey("a key of sixteen bytes");

LeaderGreeting::Group Group(GroupKey key = kKey) {
  return {.key = std::move(key), .nodes = 3, .ranks = 6, .instance = "one"};
}

FollowerGreeting::Options Follower(const NodePlace& place = {.node = 2, .nodes = 3, .local = 1}) {
  return {.key = kKey, .place = place};
}

// The reason of the first refusal on either side; OK when the follower was accepted.
absl::Status Greet(LeaderGreeting& leader, FollowerGreeting& follower) {
  std::optional<Frame> frame = follower.Hello();
  while (frame) {
    const absl::StatusOr<Frame> answer = leader.Take(*frame);
    if (!answer.ok()) return answer.status();
    absl::StatusOr<std::optional<Frame>> next = follower.Take(*answer);
    if (!next.ok()) return next.status();
    frame = *std::move(next);
  }
  return absl::OkStatus();
}

std::string Refusal(const LeaderGreeting::Group& group, const FollowerGreeting::Options& options) {
  LeaderGreeting leader(group);
  FollowerGreeting follower(options);
  const absl::Status status = Greet(leader, follower);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(leader.joined().has_value());
  return std::string(status.message());
}

TEST(GreetingTest, ANodeLearnsItsRank) {
  const auto group = Group();
  const auto options = Follower();
  LeaderGreeting leader(group);
  FollowerGreeting follower(options);
  ASSERT_TRUE(Greet(leader, follower).ok());
  EXPECT_EQ(*leader.joined(), options.place);
  EXPECT_EQ(leader.rank(), 5);
  EXPECT_EQ(follower.grant().rank, 5);
  EXPECT_EQ(follower.grant().local_ranks, 2);
  EXPECT_EQ(follower.grant().ranks, 6);
  EXPECT_EQ(follower.grant().instance, "one");
}

TEST(GreetingTest, AnotherKeyIsRefusedByName) {
  for (const GroupKey& key : {GroupKey("another key of some bytes"), GroupKey()}) {
    EXPECT_THAT(Refusal(Group(key), Follower()), HasSubstr("group key differs"));
  }
}

TEST(GreetingTest, ALeaderChecksTheKeyOfAFollowerThatDoesNotCheckIts) {
  const auto group = Group();
  LeaderGreeting leader(group);
  const auto options = Follower();
  FollowerGreeting follower(options);
  ASSERT_TRUE(leader.Take(follower.Hello()).ok());
  const std::string zeros(64, '0');
  const absl::Status status =
      leader
          .Take({FrameKind::kJoin, R"({"node":1,"nodes":3,"local":0,"proof":")" + zeros + R"("})"})
          .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("group key differs"));
}

TEST(GreetingTest, AProofIsOfOneConnectionAndOnePlace) {
  const auto group = Group();
  const auto options = Follower();
  LeaderGreeting first(group);
  FollowerGreeting follower(options);
  const auto join = follower.Take(*first.Take(follower.Hello()));
  ASSERT_TRUE(join.ok() && join->has_value());
  // The same frames on another connection: the leader's nonce is another.
  LeaderGreeting second(group);
  ASSERT_TRUE(second.Take(follower.Hello()).ok());
  EXPECT_FALSE(second.Take(**join).ok());
  Frame elsewhere = **join;
  elsewhere.bytes.replace(elsewhere.bytes.find("\"node\":2"), 8, "\"node\":1");
  EXPECT_FALSE(first.Take(elsewhere).ok());
  EXPECT_TRUE(first.Take(**join).ok());
  EXPECT_FALSE(first.Take(**join).ok()) << "a frame behind the greeting";
}

TEST(GreetingTest, AnotherVersionIsRefusedWithBoth) {
  auto options = Follower();
  options.version = "0.0.1";
  const std::string why = Refusal(Group(), options);
  EXPECT_THAT(why, HasSubstr("the node runs quire 0.0.1"));
  EXPECT_THAT(why, HasSubstr(BuildVersion()));
}

TEST(GreetingTest, APlaceThatDoesNotExistIsRefused) {
  EXPECT_THAT(Refusal(Group(), Follower({.node = 1, .nodes = 2})), HasSubstr("--nnodes 2"));
  EXPECT_THAT(Refusal(Group(), Follower({.node = 3, .nodes = 3})), HasSubstr("--node-rank 3"));
  EXPECT_THAT(Refusal(Group(), Follower({.node = 0, .nodes = 3})), HasSubstr("--node-rank 0"));
  EXPECT_THAT(Refusal(Group(), Follower({.node = 1, .nodes = 3, .local = 2})),
              HasSubstr("a node has 2 ranks"));
}

TEST(GreetingTest, MalformedFramesAreRefused) {
  const auto group = Group();
  const auto options = Follower();
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 3000; ++repeat) {
    LeaderGreeting leader(group);
    FollowerGreeting follower(options);
    Frame hello = follower.Hello();
    const Frame challenge = *leader.Take(hello);
    Frame broken = repeat % 2 == 0 ? challenge : **follower.Take(challenge);
    if (repeat % 3 == 0) {
      broken.bytes.resize(random() % broken.bytes.size());
    } else {
      broken.bytes[random() % broken.bytes.size()] ^= static_cast<char>(1 + random() % 255);
    }
    if (repeat % 2 == 0) {
      FollowerGreeting again(options);
      EXPECT_FALSE(again.Take(broken).ok());
    } else {
      EXPECT_FALSE(leader.Take(broken).ok()) << broken.bytes;
    }
  }
}

TEST(GroupKeyTest, AFileGivesItsBytesWithoutTheLineEnd) {
  const std::string path = testing::TempDir() + "quire_group_key";
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write("0123456789abcdef\n");
  const auto key = GroupKey::Read(path);
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_TRUE(key->Verify("text", GroupKey("0123456789abcdef").Prove("text")));
  EXPECT_FALSE(key->Verify("texT", GroupKey("0123456789abcdef").Prove("text")));
  EXPECT_FALSE(key->Verify("text", ""));
  write("0123456789abcde\n");
  EXPECT_THAT(std::string(GroupKey::Read(path).status().message()), HasSubstr("holds 15 bytes"));
  EXPECT_THAT(std::string(GroupKey::Read(path + "x").status().message()),
              HasSubstr("cannot be read"));
}

// The second test case of RFC 4231.
TEST(GroupKeyTest, AProofIsHmacSha256) {
  const std::string proof = GroupKey("Jefe").Prove("what do ya want for nothing?");
  EXPECT_EQ(proof.substr(0, 4), "\x5b\xdc\xc1\x46");
  EXPECT_EQ(proof.size(), 32u);
}

}  // namespace
}  // namespace quire

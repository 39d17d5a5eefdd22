// LeaderGreeting, FollowerGreeting: the first frames of a connection, by which both sides prove the
// group's key and learn the place of a rank. Frames in, frames out: neither has a socket.
//
//   follower: hello      version, nonce
//   leader:   challenge  nonce, proof of both nonces
//   follower: join       its node and place, proof of both nonces and these
//   leader:   accepted   the rank of that place, the leader's instance
//
// Either side may answer with refused, which carries the reason as text, and then closes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/worker/remote/frame.h"
#include "engine/worker/remote/group_key.h"

namespace quire {

// The version of this build. Only equal versions form a group.
std::string BuildVersion();

// A rank's place as its host says it.
struct NodePlace {
  int32_t node = 0;   // --node-rank
  int32_t nodes = 1;  // --nnodes
  int32_t local = 0;  // among the ranks of the node

  bool operator==(const NodePlace&) const = default;
};

// The rank that the leader gives to a place.
struct RankGrant {
  int32_t rank = 0;
  int32_t local_ranks = 0;  // of each node
  int32_t ranks = 0;        // of the group
  std::string instance;     // of the leader's process: another after each start
};

class LeaderGreeting {
 public:
  struct Group {
    GroupKey key;
    std::string version = BuildVersion();
    int32_t nodes = 1;
    int32_t ranks = 1;
    std::string instance;
  };

  // `group` outlives this.
  explicit LeaderGreeting(const Group& group) : group_(group) {}

  // The answer to the next frame. An error is the reason of a refusal: a malformed frame, another
  // version, a key that differs, or a place that does not exist.
  absl::StatusOr<Frame> Take(const Frame& frame);
  // Once the other side has joined.
  const std::optional<NodePlace>& joined() const { return joined_; }
  int32_t rank() const;

 private:
  absl::StatusOr<Frame> Challenge(const Frame& hello);
  absl::StatusOr<Frame> Accept(const Frame& join);

  const Group& group_;
  std::string follower_nonce_;  // empty: no hello yet
  const std::string nonce_ = GroupKey::Nonce();
  std::optional<NodePlace> joined_;
};

class FollowerGreeting {
 public:
  struct Options {
    GroupKey key;
    std::string version = BuildVersion();
    NodePlace place;
  };

  // `options` outlive this.
  explicit FollowerGreeting(const Options& options) : options_(options) {}

  Frame Hello() const;
  // The answer to the leader's next frame; nullopt once it has accepted. FAILED_PRECONDITION: the
  // leader refuses, or does not prove the key.
  absl::StatusOr<std::optional<Frame>> Take(const Frame& frame);
  // Once accepted.
  const RankGrant& grant() const { return grant_; }

 private:
  absl::StatusOr<Frame> Join(const Frame& challenge);
  absl::Status ReadGrant(const Frame& accepted);

  const Options& options_;
  const std::string nonce_ = GroupKey::Nonce();
  bool challenged_ = false;
  RankGrant grant_;
};

}  // namespace quire

// The fields of each frame, and the texts that a key signs.
#include "engine/worker/remote/greeting.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/model/config/config_reader.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr int32_t kMaxRanks = 4096;
constexpr size_t kMaxReason = 512;
constexpr char kKeyDiffers[] =
    "the group key differs from the leader's: give both the same --group-key-file";

// The texts differ by side, so that no proof answers itself; nonces have a fixed length.
std::string LeaderText(const std::string& follower, const std::string& leader) {
  return "quire leader " + follower + leader;
}
std::string FollowerText(const std::string& follower, const std::string& leader,
                         const NodePlace& place) {
  return "quire follower " + follower + leader + std::to_string(place.node) + " of " +
         std::to_string(place.nodes) + ", " + std::to_string(place.local);
}

Frame MakeFrame(FrameKind kind, const Json& json) {
  return {kind, json.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

absl::StatusOr<Json> Parse(const Frame& frame, FrameKind kind, const char* name) {
  if (frame.kind != kind) {
    return absl::InvalidArgumentError(std::string("another frame than ") + name);
  }
  ASSIGN_OR_RETURN(Json json, ParseJson(frame.bytes, name));
  if (!json.is_object()) return absl::InvalidArgumentError(std::string(name) + " is no object");
  return json;
}

// Bytes that travel as hexadecimal digits; empty if they are malformed.
std::string Bytes(ConfigReader& reader, const char* key) {
  const std::string text = reader.String(key, "");
  const bool digits = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!digits || text.size() != 2 * GroupKey::kNonceBytes) {
    reader.Refuse(key, "32 bytes in hexadecimal digits");
    return "";
  }
  return absl::HexStringToBytes(text);
}

int32_t Number(ConfigReader& reader, const char* key, int32_t lowest) {
  return static_cast<int32_t>(reader.Int(key, lowest, kMaxRanks));
}

// A version or reason of the other side, as a log may carry it.
std::string Printable(std::string text) {
  text.resize(std::min(text.size(), kMaxReason));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace

std::string BuildVersion() { return QUIRE_VERSION; }

absl::StatusOr<Frame> LeaderGreeting::Take(const Frame& frame) {
  if (joined_) return absl::InvalidArgumentError("a frame behind the greeting");
  if (frame.kind == FrameKind::kRefused) {
    return absl::FailedPreconditionError("it refuses this leader: " + Printable(frame.bytes));
  }
  return follower_nonce_.empty() ? Challenge(frame) : Accept(frame);
}

absl::StatusOr<Frame> LeaderGreeting::Challenge(const Frame& hello) {
  ASSIGN_OR_RETURN(const Json json, Parse(hello, FrameKind::kHello, "hello"));
  ConfigReader reader(json, "hello");
  const std::string version = Printable(reader.String("version", ""));
  const std::string nonce = Bytes(reader, "nonce");
  RETURN_IF_ERROR(reader.status());
  if (version != group_.version) {
    return absl::FailedPreconditionError("the node runs quire " + version + ", the leader quire " +
                                         group_.version + ": run the same on both");
  }
  follower_nonce_ = nonce;
  const std::string proof = group_.key.Prove(LeaderText(nonce, nonce_));
  return MakeFrame(FrameKind::kChallenge, {{"nonce", absl::BytesToHexString(nonce_)},
                                           {"proof", absl::BytesToHexString(proof)}});
}

absl::StatusOr<Frame> LeaderGreeting::Accept(const Frame& join) {
  ASSIGN_OR_RETURN(const Json json, Parse(join, FrameKind::kJoin, "join"));
  ConfigReader reader(json, "join");
  const NodePlace place{.node = Number(reader, "node", 0),
                        .nodes = Number(reader, "nodes", 1),
                        .local = Number(reader, "local", 0)};
  const std::string proof = Bytes(reader, "proof");
  RETURN_IF_ERROR(reader.status());
  if (!group_.key.Verify(FollowerText(follower_nonce_, nonce_, place), proof)) {
    return absl::FailedPreconditionError(kKeyDiffers);
  }
  if (place.nodes != group_.nodes) {
    return absl::FailedPreconditionError("the node has --nnodes " + std::to_string(place.nodes) +
                                         ", the leader --nnodes " + std::to_string(group_.nodes));
  }
  if (place.node < 1 || place.node >= group_.nodes) {
    return absl::FailedPreconditionError("--node-rank " + std::to_string(place.node) +
                                         " is no follower of " + std::to_string(group_.nodes) +
                                         " nodes");
  }
  const int32_t local_ranks = group_.ranks / group_.nodes;
  if (place.local >= local_ranks) {
    return absl::FailedPreconditionError("a node has " + std::to_string(local_ranks) + " ranks");
  }
  joined_ = place;
  return MakeFrame(FrameKind::kAccepted, {{"rank", rank()},
                                          {"local_ranks", local_ranks},
                                          {"ranks", group_.ranks},
                                          {"instance", group_.instance}});
}

int32_t LeaderGreeting::rank() const {
  return joined_->node * (group_.ranks / group_.nodes) + joined_->local;
}

Frame FollowerGreeting::Hello() const {
  return MakeFrame(FrameKind::kHello,
                   {{"version", options_.version}, {"nonce", absl::BytesToHexString(nonce_)}});
}

absl::StatusOr<std::optional<Frame>> FollowerGreeting::Take(const Frame& frame) {
  if (frame.kind == FrameKind::kRefused) {
    return absl::FailedPreconditionError(
        frame.bytes.empty() ? "the leader refuses, and does not say why" : Printable(frame.bytes));
  }
  if (!challenged_) {
    ASSIGN_OR_RETURN(Frame join, Join(frame));
    return std::optional<Frame>(std::move(join));
  }
  RETURN_IF_ERROR(ReadGrant(frame));
  return std::optional<Frame>();
}

absl::StatusOr<Frame> FollowerGreeting::Join(const Frame& challenge) {
  ASSIGN_OR_RETURN(const Json json, Parse(challenge, FrameKind::kChallenge, "challenge"));
  ConfigReader reader(json, "challenge");
  const std::string leader = Bytes(reader, "nonce");
  const std::string proof = Bytes(reader, "proof");
  RETURN_IF_ERROR(reader.status());
  if (!options_.key.Verify(LeaderText(nonce_, leader), proof)) {
    return absl::FailedPreconditionError(kKeyDiffers);
  }
  challenged_ = true;
  const NodePlace& place = options_.place;
  const std::string mine = options_.key.Prove(FollowerText(nonce_, leader, place));
  return MakeFrame(FrameKind::kJoin, {{"node", place.node},
                                      {"nodes", place.nodes},
                                      {"local", place.local},
                                      {"proof", absl::BytesToHexString(mine)}});
}

absl::Status FollowerGreeting::ReadGrant(const Frame& accepted) {
  ASSIGN_OR_RETURN(const Json json, Parse(accepted, FrameKind::kAccepted, "accepted"));
  ConfigReader reader(json, "accepted");
  grant_ = {.rank = Number(reader, "rank", 1),
            .local_ranks = Number(reader, "local_ranks", 1),
            .ranks = Number(reader, "ranks", 2),
            .instance = reader.String("instance", "")};
  return reader.status();
}

}  // namespace quire

// The bodies of the targets; CHECK is the oracle.
#include "tests/fuzz/targets/group_targets.h"

#include <cstring>
#include <string>
#include <vector>

#include "engine/worker/process/handshake.h"
#include "engine/worker/process/plan_codec.h"
#include "engine/worker/remote/frame.h"
#include "engine/worker/remote/greeting.h"
#include "kernels/check.h"

namespace quire {
namespace {

// As long as the input, so that a sanitizer sees a read beyond it.
std::vector<std::byte> Copy(std::string_view bytes) {
  std::vector<std::byte> copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy;
}

template <typename Value>
void CheckCodec(const std::vector<std::byte>& bytes,
                bool (*decode)(std::span<const std::byte>, Value&),
                size_t (*encode)(const Value&, std::span<std::byte>)) {
  Value value, again;
  if (!decode(bytes, value)) return;
  std::vector<std::byte> out(bytes.size());
  const size_t used = encode(value, out);
  CHECK_EQ(used, EncodedBytes(bytes));
  CHECK(decode(std::span(out).first(used), again));
  std::vector<std::byte> repeated(bytes.size());
  CHECK_EQ(encode(again, repeated), used);
  CHECK(std::memcmp(out.data(), repeated.data(), used) == 0);
}

// The frames of the bytes, which arrive `piece` at a time.
std::vector<Frame> FramesOf(std::string_view bytes, size_t piece, absl::Status* status) {
  FrameReader reader(Frame::kMaxGreetingBytes);
  std::vector<Frame> frames;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.Append(bytes.substr(at, piece));
    for (;;) {
      absl::StatusOr<std::optional<Frame>> next = reader.Next();
      *status = next.status();
      if (!next.ok()) return frames;
      if (!*next) break;
      frames.push_back(**std::move(next));
      CHECK_LE(frames.back().bytes.size(), Frame::kMaxGreetingBytes);
    }
  }
  return frames;
}

}  // namespace

void FuzzHandshake(std::string_view bytes) {
  const std::string text(bytes);
  if (const auto order = DecodeOrder(text); order.ok()) {
    const auto again = DecodeOrder(EncodeOrder(*order));
    CHECK(again.ok());
    CHECK(EncodeOrder(*again) == EncodeOrder(*order));
  } else {
    CHECK(!order.status().message().empty());
  }
  if (const auto message = DecodeMessage(text); message.ok()) {
    const auto again = DecodeMessage(EncodeMessage(*message));
    CHECK(again.ok());
    CHECK(EncodeMessage(*again) == EncodeMessage(*message));
  }
  if (const auto shares = DecodeShares(text); shares.ok()) {
    CHECK(*DecodeShares(EncodeShares(*shares)) == *shares);
  }
}

void FuzzPlanCodec(std::string_view bytes) {
  const std::vector<std::byte> copy = Copy(bytes);
  CHECK_LE(EncodedBytes(copy), copy.size());
  CheckCodec<StepPlan>(copy, DecodePlan, EncodePlan);
  CheckCodec<StepResult>(copy, DecodeResult, EncodeResult);
}

void FuzzFrames(std::string_view bytes) {
  absl::Status whole, cut;
  const std::vector<Frame> frames = FramesOf(bytes, bytes.size() + 1, &whole);
  for (const size_t piece : {1, 7, 64}) {
    CHECK(FramesOf(bytes, piece, &cut) == frames);
    CHECK(cut.code() == whole.code());
  }
}

void FuzzGreeting(std::string_view bytes) {
  static const LeaderGreeting::Group& group = *new LeaderGreeting::Group{
      .key = GroupKey("a key of sixteen bytes"), .nodes = 3, .ranks = 6, .instance = "one"};
  static const FollowerGreeting::Options& options = *new FollowerGreeting::Options{
      .key = group.key, .place = {.node = 2, .nodes = 3, .local = 1}};
  if (bytes.empty()) return;
  const Frame frame{static_cast<FrameKind>(bytes[0]), std::string(bytes.substr(1))};
  FollowerGreeting follower(options);
  for (const bool greeted : {false, true}) {
    LeaderGreeting leader(group);
    if (greeted) CHECK(leader.Take(follower.Hello()).ok());
    const auto answer = leader.Take(frame);
    CHECK(answer.ok() || !answer.status().message().empty());
    CHECK(!leader.joined());
  }
  const auto next = follower.Take(frame);
  CHECK(!next.ok() && !next.status().message().empty());
}

}  // namespace quire

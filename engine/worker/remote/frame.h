// Frame: one message between a leader and the hosts of its remote ranks: a kind and bytes. On the
// connection it is eight bytes of head (kind, three zero bytes, length in little-endian order) and
// then its bytes. Both ends are of the same build, so structures travel as they lie in memory.
//
//   follower: hello, join                             leader: challenge, accepted | refused
//
// Behind these, between the relay and the host of a rank (see greeting.h, relay.h, hosted_rank.h):
//
//   both:     message    a message of process/handshake.h, unchanged
//   relay:    plan, load job, store job               as in the rings of StepMemory
//   host:     result, load ack, store ack             as in the rings of StepMemory
//             counters                                the rank's heartbeat and ready pages
//             output                                  bytes of the worker's stdout and stderr
//             ended                                   the worker ended after its last plan
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace quire {

enum class FrameKind : uint8_t {
  kHello = 1,
  kChallenge,
  kJoin,
  kAccepted,
  kRefused,
  kMessage,
  kPlan,
  kLoadJob,
  kStoreJob,
  kResult,
  kLoadAck,
  kStoreAck,
  kCounters,
  kOutput,
  kEnded,
};

struct Frame {
  // Of the greeting, and of all kinds until the size of a plan is known.
  static constexpr size_t kMaxGreetingBytes = 4096;
  static constexpr size_t kMaxStartBytes = size_t{1} << 20;

  FrameKind kind = FrameKind::kHello;
  std::string bytes;

  bool operator==(const Frame&) const = default;
};

inline constexpr size_t kFrameHeadBytes = 8;
// The head of a frame of that many bytes, less than 4 GiB.
std::string FrameHead(FrameKind kind, size_t bytes);

// Cuts a stream of bytes, which arrive in any pieces, into frames.
class FrameReader {
 public:
  explicit FrameReader(size_t max_bytes) : max_bytes_(max_bytes) {}

  // The longest frame from here on.
  void set_max_bytes(size_t max_bytes) { max_bytes_ = max_bytes; }
  void Append(std::string_view bytes) { bytes_ += bytes; }
  // The next whole frame; nullopt if some of its bytes are missing. INVALID_ARGUMENT for an unknown
  // kind and for a frame that is too long; no frame can be read after it.
  absl::StatusOr<std::optional<Frame>> Next();

 private:
  size_t max_bytes_;
  std::string bytes_;
  size_t begin_ = 0;  // of the bytes that are not yet a frame
};

}  // namespace quire

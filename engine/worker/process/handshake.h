// The messages between server and worker before the first plan: JSON, each after four bytes of its
// length (little-endian), over the socket that the worker inherits. The end of the same socket
// tells each side that the other is gone.
//
//   server: describe   kind of device, model, sizes
//   worker: device     its facts                              | error, and it ends
//   server: start      the same with everything decided
//   worker: share      bytes for the other ranks              | error, and it ends
//   server: shared     the bytes of all ranks, once each has sent its own
//                      (the last two any number of times, the same on every rank)
//   worker: ready      time and memory of the start           | error, and it ends
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/worker/process/step_memory.h"
#include "engine/worker/rank/device_facts.h"
#include "engine/worker/rank/worker_spec.h"
#include "kernels/rank_exchange.h"

namespace quire {

struct WorkerOrder {
  bool start = false;  // else describe: sizes that depend on the device's memory may still be 0
  std::string device;  // "cpu", "cuda"
  int32_t cpu_threads = 0;
  int64_t spin_ns = 0;     // of the step thread, before it sleeps
  WorkerSpec spec;         // of this rank; the worker reads the model's config from its directory
  int32_t local_rank = 0;  // among the ranks of this host: the GPU that it takes
  // Numeric address of the rank's host among the hosts of the group; empty: there is one host.
  std::string host;
  // The rest is not part of the message. Set by the worker: its place among the ranks.
  RankPlace place;
  // The rank's host memory: in the server the arena that the
  // process inherits, in the worker its view of it; null: none.
  std::shared_ptr<HostArena> arena;
  // Of a rank of another host: the socket that its relay inherits in place of the arena. Null: the
  // rank runs on this host.
  std::shared_ptr<const Descriptor> relay;
  // Set by the worker: the folder where it keeps measurements; empty: none.
  std::string cache_dir;
};

// The shape of the memory that the server and the ranks of a group share, from any rank's spec.
StepMemory::Shape StepShapeOf(const WorkerSpec& spec);

// Errors of DecodeOrder: INVALID_ARGUMENT names the faulty field.
std::string EncodeOrder(const WorkerOrder& order);
absl::StatusOr<WorkerOrder> DecodeOrder(const std::string& text);

struct WorkerFailure {
  absl::Status status;
};
// A rank's bytes in a round of RankExchange.
struct WorkerShare {
  std::string bytes;
};
using WorkerMessage = std::variant<DeviceFacts, WorkerShare, WorkerReport, WorkerFailure>;

std::string EncodeMessage(const WorkerMessage& word);
// INVALID_ARGUMENT for a malformed message.
absl::StatusOr<WorkerMessage> DecodeMessage(const std::string& text);

// The answer to a round of shares: the bytes of all ranks, by rank. DecodeShares: INVALID_ARGUMENT
// for any other message.
std::string EncodeShares(const std::vector<std::string>& shares);
absl::StatusOr<std::vector<std::string>> DecodeShares(const std::string& text);

// Sends a message; UNAVAILABLE when the other side is gone.
absl::Status SendMessage(int socket, const std::string& text);

// Cuts a stream of bytes, which arrive in any pieces, into messages.
class MessageReader {
 public:
  static constexpr size_t kMaxBytes = 1 << 20;

  // Reads the bytes that the socket has; blocks if it has none. UNAVAILABLE at its end,
  // INVALID_ARGUMENT for a length above kMaxBytes.
  absl::Status ReadFrom(int socket);
  // The next whole message.
  std::optional<std::string> Next();

 private:
  // Of the first message; 0 until its length has arrived.
  size_t Length() const;

  std::string bytes_;
};

// Waits for the next message.
absl::StatusOr<std::string> AwaitMessage(int socket, MessageReader& reader);

}  // namespace quire

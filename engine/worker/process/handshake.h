// The words between server and worker before the first plan: JSON messages, each behind four bytes
// of its length (little-endian), over the socket that the worker inherits. The same socket is the
// death pipe: whoever reads its end knows that the other side is gone.
//
//   server: describe   which device, for what model and sizes
//   worker: device     its facts                              | error, and it ends
//   server: start      the same with everything decided
//   worker: ready      what starting took and how much memory | error, and it ends
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/worker/process/step_memory.h"
#include "engine/worker/rank/device_facts.h"
#include "engine/worker/rank/worker_spec.h"

namespace quire {

struct WorkerOrder {
  bool start = false;  // else: describe; what depends on the device's memory may still be 0
  std::string device;  // "cpu", "cuda"
  int32_t cpu_threads = 0;
  int64_t spin_ns = 0;  // of the step thread, before it sleeps
  WorkerSpec spec;      // of this rank; the model's config is left to be read from its directory
  // What follows does not travel in words. The rank's host memory: the server's, which the process
  // inherits, and then the worker's view of it; null: there is none.
  std::shared_ptr<HostArena> arena;
  // The worker's own: where it may keep what it measured; empty: nowhere.
  std::string cache_dir;
};

// What the server and the ranks of a group share, by the spec of any of them.
StepMemory::Shape StepShapeOf(const WorkerSpec& spec);

// INVALID_ARGUMENT names the field that is wrong.
std::string EncodeOrder(const WorkerOrder& order);
absl::StatusOr<WorkerOrder> DecodeOrder(const std::string& text);

struct WorkerFailure {
  absl::Status status;
};
using WorkerWord = std::variant<DeviceFacts, WorkerReport, WorkerFailure>;

std::string EncodeWord(const WorkerWord& word);
// INVALID_ARGUMENT for a message that no worker in its right mind sends.
absl::StatusOr<WorkerWord> DecodeWord(const std::string& text);

// Sends a message; UNAVAILABLE when the other side is gone.
absl::Status SendMessage(int socket, const std::string& text);

// Takes messages off a stream of bytes that arrive in any pieces.
class MessageReader {
 public:
  static constexpr size_t kMaxBytes = 1 << 20;

  // Reads once what the socket has; blocks if it has nothing. UNAVAILABLE at its end,
  // INVALID_ARGUMENT for a length that no message has.
  absl::Status ReadFrom(int socket);
  // The next whole message.
  std::optional<std::string> Next();

 private:
  // Of the first message, once its length is here.
  size_t Length() const;

  std::string bytes_;
};

// Waits for the next message.
absl::StatusOr<std::string> AwaitMessage(int socket, MessageReader& reader);

}  // namespace quire

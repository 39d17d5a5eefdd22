// RankExchange: how the ranks of a group tell each other a few bytes before they can exchange
// tensors: handles of memory, the identity of a communicator.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace quire {

class RankExchange {
 public:
  virtual ~RankExchange() = default;
  // Gives this rank's bytes, at most a few KiB. Returns the bytes of all ranks, by rank, once every
  // rank has given its own. All ranks make the same calls in the same order. A group that loses a
  // rank is killed as a whole, so the call has no error and blocks without a limit. One thread.
  virtual std::vector<std::string> Share(const std::string& bytes) = 0;
  // Ends this rank, which cannot go on without another rank that it has lost; `why` names that
  // rank. Does not return.
  [[noreturn]] virtual void Lost(const std::string& why) = 0;
};

// The place of a rank whose process is its own.
struct RankPlace {
  int32_t rank = 0;
  int32_t ranks = 1;
  bool one_host = true;              // all ranks run on one host
  std::string host;                  // of several: this host's numeric address among them
  RankExchange* exchange = nullptr;  // outlives the backend; null in a group of one
  // Counts the collectives that this rank has begun; null: not counted. GPUs that NCCL alone joins
  // count none. The server reads it to say which rank delays its group.
  std::atomic<uint64_t>* collectives = nullptr;
};

}  // namespace quire

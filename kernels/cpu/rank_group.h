// RankGroup: one CPU rank's place in its group. The only exchange between ranks: each gives bytes,
// and each reads the bytes of all. The collectives are built on it (group_collectives.h). One
// thread uses a place. An exchange blocks until every rank has made it; a rank that loses another
// over the network ends its process (RankExchange::Lost).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/rank_exchange.h"

namespace quire::cpu {

class RankGroup {
 public:
  // The most bytes that a rank gives in one exchange.
  static constexpr size_t kMaxBytes = size_t{1} << 20;

  virtual ~RankGroup() = default;
  int32_t rank() const { return rank_; }
  int32_t ranks() const { return ranks_; }

  // Where to write the bytes for the next Exchange: room for kMaxBytes, aligned to 64.
  virtual std::byte* Mine() = 0;
  // Gives the first `bytes` of Mine, the same number on every rank. Returns those of all ranks, by
  // rank; they are readable until the next call.
  virtual std::span<const std::byte* const> Exchange(size_t bytes) = 0;

 protected:
  RankGroup(int32_t rank, int32_t ranks) : rank_(rank), ranks_(ranks) {}

 private:
  const int32_t rank_;
  const int32_t ranks_;
};

// The places of a group whose ranks are threads of this process.
std::vector<std::unique_ptr<RankGroup>> JoinThreads(int32_t ranks, bool may_spin);
// The place of a rank that is a process of its own on the same host as all others: they share
// memory, which `place.exchange` leads them to. Null when the memory cannot be had; `why` then
// gives the reason.
std::unique_ptr<RankGroup> JoinProcesses(const RankPlace& place, bool may_spin, std::string* why);

}  // namespace quire::cpu

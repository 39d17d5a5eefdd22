// PeerMemory: device memory of every rank of a host that every rank can write.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "kernels/cuda/group/group_view.h"
#include "kernels/rank_exchange.h"

namespace quire::cuda {

class PeerMemory {
 public:
  // Takes `bytes` of the current device, zeroed. Every rank makes the call with the same size. Null
  // if the ranks' devices do not reach each other, or one has too little memory; `why` gives the
  // reason.
  static std::unique_ptr<PeerMemory> Create(const RankPlace& place, size_t bytes, std::string* why);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // The memory of a rank, as this rank reaches it.
  std::byte* of(int32_t rank) const { return memory_[static_cast<size_t>(rank)]; }

 private:
  explicit PeerMemory(int32_t rank) : rank_(rank) {}

  const int32_t rank_;
  std::array<std::byte*, kMaxPeers> memory_{};
};

}  // namespace quire::cuda

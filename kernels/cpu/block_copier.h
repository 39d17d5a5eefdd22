// PlainBlockCopier: the CPU's BlockCopier. A copy has ended when Begin returns.
#pragma once

#include <cstring>

#include "kernels/block_copier.h"

namespace quire::cpu {

class PlainBlockCopier final : public BlockCopier {
 public:
  bool Pin(void*, size_t) override { return true; }
  uint64_t Begin(Direction direction, std::span<const Copy> copies, size_t bytes) override {
    for (const Copy& copy : copies) {
      const bool to_host = direction == Direction::kToHost;
      std::memcpy(to_host ? copy.host : copy.device, to_host ? copy.device : copy.host, bytes);
    }
    return ++begun_[static_cast<size_t>(direction)];
  }
  void WaitFor(Direction, uint64_t) override {}

 private:
  uint64_t begun_[2] = {};  // by direction; each direction has one thread
};

}  // namespace quire::cpu

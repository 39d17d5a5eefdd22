// CollectiveGroup: all-reduce and all-gather between the rank threads of one process. All ranks of
// the group make the same calls in the same order with the same shapes, each from its own thread. A
// call returns when every rank has its result.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/tensor.h"

namespace quire::cpu {

class CollectiveGroup {
 public:
  CollectiveGroup(int ranks, bool may_spin);

  int ranks() const { return ranks_; }

  // x = sum over ranks of x, added in rank order; x is f32.
  void AllReduceSum(int rank, const TensorView& x);
  // out[t] = x of rank 0 [t], x of rank 1 [t], ...
  void AllGather(int rank, const TensorView& x, const TensorView& out);

 private:
  // Returns when all ranks have arrived.
  void Barrier();

  const int ranks_;
  const bool may_spin_;
  std::vector<TensorView> views_;  // [ranks] each rank's tensor; unchanged between two barriers
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
};

}  // namespace quire::cpu

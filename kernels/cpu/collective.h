// CollectiveGroup: all-reduce and all-gather between the rank threads of one process. All ranks of
// the group call the same operations in the same order with the same shapes, each from its own
// thread; a call returns when the results are in place on every rank.
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
  std::vector<TensorView> views_;  // [ranks] what each rank brought; stable between two barriers
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
};

}  // namespace quire::cpu

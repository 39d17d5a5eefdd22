// Collectives: exchanges between the ranks of one tensor-parallel group. Every rank of the group
// makes the same calls in the same order with tensors of the same shapes, each from its own thread.
//
// In a group of one rank the sum over ranks is x itself and the concatenation is a copy of x:
// AllReduceSum does nothing and AllGather copies. A device that cannot exchange accepts no other
// group and CHECKs that.
#pragma once

#include "kernels/tensor.h"

namespace quire {

class Collectives {
 public:
  virtual ~Collectives() = default;

  // x = sum over ranks of x, added in rank order, so that every rank holds the same bits.
  virtual void AllReduceSum(TensorView x) = 0;
  // out[t] = concatenation over ranks of x[t]. x is [T, n], out is [T, n * ranks]; x and out do not
  // overlap.
  virtual void AllGather(TensorView x, TensorView out) = 0;
};

}  // namespace quire

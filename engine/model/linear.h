// Linear, Vocabulary: the matrix products of a tensor-parallel model. A rank holds a slice of each
// weight, so a product gives a slice of the outputs or a part of their sum.
#pragma once

#include <cstdint>

#include "engine/model/checkpoint/tp.h"
#include "kernels/backend.h"
#include "kernels/ceil_div.h"

namespace quire {

// out = x * w^T + bias. Where the outputs are split among the ranks, w, bias and out are this
// rank's slice. Where the inputs are split, x and w are its slice and out is its part of a sum over
// the ranks, which the caller adds up (Collectives::SumRmsNorm); rank 0 alone holds the bias.
class Linear {
 public:
  Linear() = default;
  // The views must outlive this; bias may be empty. Not empty, `order` [in] has the input of each
  // column of a weight whose columns are sorted.
  explicit Linear(TensorView weight, TensorView bias = {}, TensorView order = {})
      : weight_(weight), bias_(bias), order_(order) {}

  // Whether the weight is 8-bit: then x is, too.
  bool eight_bit() const { return IsEightBit(weight_.dtype); }

  // x: [T, in], out: [T, out], as this rank holds them. `ordered`, at least as large as x, is for
  // the inputs in the order of the columns; unused without one.
  void Apply(Backend& backend, TensorView x, TensorView out, TensorView ordered = {}) const {
    if (!order_.empty()) {
      ordered = ordered.Columns(0, x.dim[1]);
      backend.GatherColumns({.x = x, .columns = order_.ptr<int32_t>(), .out = ordered});
      x = ordered;
    }
    backend.MatMul({.x = x, .w = weight_, .bias = bias_, .out = out});
  }

 private:
  TensorView weight_;  // [out, in]
  TensorView bias_;    // [out] or empty
  TensorView order_;   // [in] or empty
};

// Token embedding and output head over a vocabulary cut into equal runs of rows; zeros pad the
// last. A model may tie the two.
class Vocabulary {
 public:
  // Rows a rank holds: in a group, a multiple of what kernels load at once.
  static int64_t LocalRows(int64_t vocab_size, TpInfo tp) {
    constexpr int64_t kMultiple = 8;
    if (tp.size == 1) return vocab_size;
    return RoundUp(CeilDiv<int64_t>(vocab_size, tp.size), kMultiple);
  }

  Vocabulary() = default;
  // embedding, head: [LocalRows, H].
  Vocabulary(TensorView embedding, TensorView head, TpInfo tp)
      : embedding_(embedding), head_(head), tp_(tp) {}

  // out: [T, H]: the rows of `ids`. Each is summed over the ranks: one holds it, the rest add
  // zeros.
  void Embed(Backend& backend, const int32_t* ids, TensorView out) const {
    const auto begin = static_cast<int32_t>(tp_.rank * embedding_.dim[0]);
    backend.Embed({.ids = ids, .table = embedding_, .vocab_begin = begin, .out = out});
    backend.AllReduceSum(out);
  }

  // x: [R, H]; logits: [R, LocalRows] f32, of this rank's run of the vocabulary.
  void Logits(Backend& backend, TensorView x, TensorView logits) const {
    backend.MatMul({.x = x, .w = head_, .bias = {}, .out = logits});
  }

 private:
  TensorView embedding_;
  TensorView head_;
  TpInfo tp_;
};

}  // namespace quire

// Linear, Vocabulary: the matrix products of a tensor-parallel model. A rank holds a slice of each
// weight; these classes exchange the parts so that every rank ends with the same full result. They
// are the only callers of the backend's collectives.
#pragma once

#include <cstdint>

#include "engine/model/checkpoint/tp.h"
#include "kernels/backend.h"
#include "kernels/ceil_div.h"

namespace quire {

// out = x * w^T + bias.
//   kReplicated: w is whole on every rank.
//   kColumn: the rank holds a slice of the outputs; its out is that slice, without an exchange.
//   kRow: the rank holds a slice of the inputs, x is that slice, and the ranks' partial results are
//         summed. The bias is held by rank 0 alone.
class Linear {
 public:
  enum class Split : uint8_t { kReplicated, kColumn, kRow };

  Linear() = default;
  // The views must outlive this; bias may be empty.
  Linear(TensorView weight, TensorView bias, Split split)
      : weight_(weight), bias_(bias), split_(split) {}

  // x: [T, in], out: [T, out], as this rank holds them.
  void Apply(Backend& backend, TensorView x, TensorView out) const;

 private:
  TensorView weight_;  // [out, in]
  TensorView bias_;    // [out] or empty
  Split split_ = Split::kReplicated;
};

// Token embedding and output head over a vocabulary cut into equal runs of rows; zeros pad the last
// run. A model may tie the two.
class Vocabulary {
 public:
  // Rows a rank holds.
  static int64_t LocalRows(int64_t vocab_size, TpInfo tp) {
    return CeilDiv<int64_t>(vocab_size, tp.size);
  }

  Vocabulary() = default;
  // embedding, head: [LocalRows, H].
  Vocabulary(TensorView embedding, TensorView head, TpInfo tp)
      : embedding_(embedding), head_(head), tp_(tp) {}

  // out: [T, H]: the rows of `ids`. Each is summed over the ranks: one holds it, the rest add
  // zeros.
  void Embed(Backend& backend, const int32_t* ids, TensorView out) const;

  // Device memory that Logits computes in: [R, LocalRows] for any split vocabulary, and for padded
  // ones [R, LocalRows * ranks] and the numbers 0 to R - 1.
  struct Scratch {
    TensorView local;
    TensorView gathered;
    const int32_t* row_numbers = nullptr;
  };
  // x: [R, H]; logits: [R, V] f32, whole on every rank.
  void Logits(Backend& backend, TensorView x, const Scratch& scratch, TensorView logits) const;

 private:
  TensorView embedding_;
  TensorView head_;
  TpInfo tp_;
};

}  // namespace quire

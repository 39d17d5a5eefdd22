// The matrix products of a tensor-parallel model. A rank holds a slice of each weight; these say
// what has to be exchanged so that every rank ends with the same full result, and are the only
// callers of the backend's collectives.
#pragma once

#include <cstdint>

#include "engine/model/checkpoint/tp.h"
#include "kernels/backend.h"

namespace quire {

// out = x * w^T + bias.
//   kReplicated: w is whole on every rank.
//   kColumn: the rank holds a slice of the outputs; its out is that slice and nothing is exchanged.
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

// Token embedding and output head over a vocabulary that is cut into equal runs of rows, the last
// one padded with zeros. Rows of both are shared when a model ties them.
class Vocabulary {
 public:
  // Rows a rank holds.
  static int64_t LocalRows(int64_t vocab_size, TpInfo tp) {
    return (vocab_size + tp.size - 1) / tp.size;
  }

  Vocabulary() = default;
  // embedding, head: [LocalRows, H].
  Vocabulary(TensorView embedding, TensorView head, TpInfo tp)
      : embedding_(embedding), head_(head), tp_(tp) {}

  // out: [T, H]: the rows of `ids`, each summed from the one rank that has it and zeros.
  void Embed(Backend& backend, const int32_t* ids, TensorView out) const;

  // Device memory that Logits works in: [R, LocalRows], [R, LocalRows * ranks] and the numbers 0 to
  // R - 1. The last two serve padded vocabularies, the first any split one.
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

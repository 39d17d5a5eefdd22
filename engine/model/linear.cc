// Each product, and the exchange that completes it.
#include "engine/model/linear.h"

namespace quire {

void Linear::Apply(Backend& backend, TensorView x, TensorView out) const {
  backend.MatMul({.x = x, .w = weight_, .bias = bias_, .out = out});
  if (split_ == Split::kRow) backend.AllReduceSum(out);
}

void Vocabulary::Embed(Backend& backend, const int32_t* ids, TensorView out) const {
  const auto begin = static_cast<int32_t>(tp_.rank * embedding_.dim[0]);
  backend.Embed({.ids = ids, .table = embedding_, .vocab_begin = begin, .out = out});
  backend.AllReduceSum(out);
}

void Vocabulary::Logits(Backend& backend, TensorView x, const Scratch& scratch,
                        TensorView logits) const {
  if (tp_.size == 1) {
    backend.MatMul({.x = x, .w = head_, .bias = {}, .out = logits});
    return;
  }
  backend.MatMul({.x = x, .w = head_, .bias = {}, .out = scratch.local});
  const bool padded = head_.dim[0] * tp_.size != logits.dim[1];
  backend.AllGather(scratch.local, padded ? scratch.gathered : logits);
  if (!padded) return;
  // The padding is at the end of each row: gathering every row, cut to V columns, drops it.
  backend.GatherRows({.x = scratch.gathered.Columns(0, logits.dim[1]),
                      .rows = scratch.row_numbers,
                      .out = logits});
}

}  // namespace quire

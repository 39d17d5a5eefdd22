// One buffer; the walk that lays it out also counts its bytes.
#include "engine/model/activations.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/rope.h"
#include "kernels/ceil_div.h"

namespace quire {
namespace {

// Hands out aligned runs behind `base`; counts only when base is null.
class Layout {
 public:
  explicit Layout(char* base) : base_(base) {}

  // A region of memory, aligned.
  void* Take(int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    void* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += RoundUp(bytes, kAlignment);
    return at;
  }
  TensorView Matrix(int64_t rows, int64_t columns, DType dtype) {
    TensorView view(nullptr, dtype, {rows, columns});
    view.data = Take(view.bytes());
    return view;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

struct Placed {
  StepTensors step;
  TensorView rope;
};

Placed Place(Layout& layout, const ModelConfig& config, TpInfo tp, const ModelOptions& options) {
  const int64_t tokens = options.max_tokens, rows = options.max_logit_rows;
  const int64_t q = Shard(config.num_heads, tp).count * config.head_dim;
  const int64_t kv = Shard(config.num_kv_heads, tp).count * config.head_dim;
  const int64_t mlp = Shard(config.intermediate_size, tp).count;
  const DType dtype = options.activation_dtype;
  // Two tensors with disjoint lifetimes in one region.
  const auto shared = [&](TensorView& a, int64_t a_width, TensorView& b, int64_t b_width) {
    const TensorView region = layout.Matrix(tokens, std::max(a_width, b_width), dtype);
    a = {region.data, dtype, {tokens, a_width}};
    b = {region.data, dtype, {tokens, b_width}};
  };

  Placed placed;
  StepTensors& s = placed.step;
  s.residual = layout.Matrix(tokens, config.hidden_size, dtype);
  s.x = layout.Matrix(tokens, config.hidden_size, dtype);
  shared(s.qkv, q + 2 * kv, s.gate_up, 2 * mlp);
  shared(s.attention, q, s.gated, mlp);
  s.row_residual = layout.Matrix(rows, config.hidden_size, dtype);
  s.row_x = layout.Matrix(rows, config.hidden_size, dtype);
  if (tp.size > 1) {
    const int64_t local = Vocabulary::LocalRows(config.vocab_size, tp);
    s.vocabulary.local = layout.Matrix(rows, local, DType::kF32);
    s.vocabulary.gathered = layout.Matrix(rows, local * tp.size, DType::kF32);
    s.vocabulary.row_numbers =
        static_cast<const int32_t*>(layout.Take(rows * int64_t{sizeof(int32_t)}));
  }
  placed.rope = layout.Matrix(options.max_model_len, config.head_dim, DType::kF32);
  return placed;
}

}  // namespace

int64_t Activations::TotalBytes(const ModelConfig& config, TpInfo tp, const ModelOptions& options) {
  Layout layout(nullptr);
  Place(layout, config, tp, options);
  return layout.used();
}

absl::StatusOr<Activations> Activations::Create(const ModelConfig& config, TpInfo tp,
                                                const ModelOptions& options, Backend& backend) {
  const int64_t total = TotalBytes(config, tp, options);
  Activations result;
  result.storage_ = backend.Allocate(static_cast<size_t>(total));
  if (result.storage_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device has no room for ", total, " bytes of activations for steps of ",
                     options.max_tokens, " tokens; lower the number of batched tokens"));
  }
  Layout layout(static_cast<char*>(result.storage_.data()));
  const Placed placed = Place(layout, config, tp, options);
  result.largest_ = placed.step;
  result.rope_ = placed.rope;

  std::vector<float> rope(placed.rope.size());
  FillRopeTable(config.rope, config.head_dim, options.max_model_len, rope);
  backend.CopyToDevice(placed.rope.data, rope.data(), rope.size() * sizeof(float));
  std::vector<int32_t> numbers(options.max_logit_rows);
  std::iota(numbers.begin(), numbers.end(), 0);
  if (tp.size > 1) {
    backend.CopyToDevice(const_cast<int32_t*>(placed.step.vocabulary.row_numbers), numbers.data(),
                         numbers.size() * sizeof(int32_t));
  }
  backend.Synchronize();
  return result;
}

StepTensors Activations::For(int32_t tokens, int32_t rows) const {
  CHECK(0 <= tokens && tokens <= largest_.x.dim[0]);
  CHECK(0 <= rows && rows <= largest_.row_x.dim[0]);
  StepTensors s = largest_;
  for (TensorView* view : {&s.residual, &s.x, &s.qkv, &s.attention, &s.gate_up, &s.gated}) {
    *view = view->Rows(0, tokens);
  }
  for (TensorView* view :
       {&s.row_residual, &s.row_x, &s.vocabulary.local, &s.vocabulary.gathered}) {
    *view = view->Rows(0, rows);
  }
  return s;
}

}  // namespace quire

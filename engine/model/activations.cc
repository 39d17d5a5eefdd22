// One buffer; the walk that lays it out also counts its bytes.
#include "engine/model/activations.h"

#include <algorithm>
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

  TensorView Matrix(int64_t rows, int64_t columns, DType dtype) {
    constexpr int64_t kAlignment = 256;
    TensorView view(base_ == nullptr ? nullptr : base_ + used_, dtype, {rows, columns});
    used_ += RoundUp(view.bytes(), kAlignment);
    return view;
  }
  // The input of products of matrices with this encoding.
  TensorView EightBit(int64_t rows, int64_t columns, const Quantization& how) {
    constexpr int64_t kVector = 4;  // floats that a device copies at once
    TensorView view = Matrix(rows, columns, how.dtype());
    view.scale_columns = how.scale_columns();
    view.scale_stride = view.scale_columns == 0 ? 0 : RoundUp(rows, kVector);
    const int64_t runs = view.scale_columns == 0 ? 1 : CeilDiv(columns, int64_t{kScaleRun});
    view.scales = Matrix(runs, std::max(rows, view.scale_stride), DType::kF32).ptr<float>();
    return view;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

struct Placed {
  StepTensors step;
  RopeTables ropes;
};

Placed Place(Layout& layout, const ModelConfig& config, TpInfo tp, const ModelOptions& options) {
  const int64_t tokens = options.max_tokens, rows = options.max_logit_rows;
  const int64_t q = Shard(config.num_heads, tp).count * config.head_dim;
  const int64_t kv = KvShard(config.num_kv_heads, tp).count * config.head_dim;
  const int64_t mlp = PaddedWidth(Shard(config.intermediate_size, tp).count, options);
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
  if (config.facts.parallel_blocks) s.parallel = layout.Matrix(tokens, config.hidden_size, dtype);
  const bool gated = config.names.gated();
  shared(s.qkv, q + 2 * kv, s.gate_up, gated ? 2 * mlp : mlp);
  shared(s.attention, q, s.gated, mlp);
  if (config.quantization.eight_bit()) {
    s.narrow_in = layout.EightBit(tokens, config.hidden_size, config.quantization);
    s.narrow = layout.EightBit(tokens, std::max(q, mlp), config.quantization);
  }
  const auto& integers = config.quantization.integers;
  if (integers.has_value() && integers->any_order) {
    s.ordered = layout.Matrix(tokens, std::max<int64_t>({config.hidden_size, q, mlp}), dtype);
  }
  s.row_residual = layout.Matrix(rows, config.hidden_size, dtype);
  s.row_x = layout.Matrix(rows, config.hidden_size, dtype);
  s.row_attention = layout.Matrix(rows, q, dtype);
  for (const Rotation rotation : {Rotation::kNone, Rotation::kGlobal, Rotation::kLocal}) {
    if (std::ranges::find(config.layer_rotation, rotation) == config.layer_rotation.end()) continue;
    placed.ropes[static_cast<size_t>(rotation)] =
        layout.Matrix(options.max_model_len, config.head_dim, DType::kF32);
  }
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
  result.ropes_ = placed.ropes;
  for (const Rotation rotation : {Rotation::kNone, Rotation::kGlobal, Rotation::kLocal}) {
    const TensorView& table = result.rope(rotation);
    if (table.empty()) continue;
    std::vector<float> values(table.size());
    if (rotation == Rotation::kNone) {
      FillIdentityTable(config.head_dim, options.max_model_len, values);
    } else {
      const bool local = rotation == Rotation::kLocal;
      FillRopeTable(local ? config.local_rope : config.rope, config.head_dim, options.max_model_len,
                    values);
    }
    backend.CopyToDevice(table.data, values.data(), values.size() * sizeof(float));
    backend.Synchronize();
  }
  return result;
}

StepTensors Activations::For(int32_t tokens, int32_t rows) const {
  CHECK(0 <= tokens && tokens <= largest_.x.dim[0]);
  CHECK(0 <= rows && rows <= largest_.row_x.dim[0]);
  StepTensors s = largest_;
  for (TensorView* view : {&s.residual, &s.x, &s.parallel, &s.qkv, &s.attention, &s.gate_up,
                           &s.gated, &s.narrow_in, &s.narrow, &s.ordered}) {
    if (!view->empty()) *view = view->Rows(0, tokens);
  }
  for (TensorView* view : {&s.row_residual, &s.row_x, &s.row_attention}) {
    *view = view->Rows(0, rows);
  }
  return s;
}

}  // namespace quire

// Which stored tensors make up the decoder, and which slices of them a rank holds.
#include "engine/model/decoder_weights.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/safetensors.h"
#include "engine/model/packed/packed_matrix.h"
#include "engine/model/rope.h"

namespace quire {
namespace {

// Norm weights are a few thousandths of the bytes and keep full precision.
constexpr DType kNormDType = DType::kF32;

constexpr char kHeadless[] =
    "; for a model that only embeds, set \"tie_word_embeddings\" to true in config.json: its "
    "vectors come from before the head, and its generated text means nothing";

// Writes the specs in the order in which Assemble takes their tensors.
class SpecWriter {
 public:
  // `checkpoint` says which scales of keys and values there are; null: none.
  SpecWriter(const ModelConfig& config, TpInfo tp, const ModelOptions& options,
             const Checkpoint* checkpoint)
      : config_(config),
        names_(config.names),
        tp_(tp),
        checkpoint_(checkpoint),
        dtype_(options.weight_dtype),
        bias_dtype_(options.activation_dtype),
        eight_bit_kv_(options.eight_bit_kv),
        dummy_(options.dummy_weights),
        kv_heads_(KvShard(config.num_kv_heads, tp)),
        mlp_width_(PaddedWidth(Shard(config.intermediate_size, tp).count, options)),
        head_order_(RotationOrder(config.rope, config.head_dim)) {}

  std::vector<WeightSpec> Write() {
    const std::string root(names_.root);
    VocabularyRows(absl::StrCat(root, std::string(names_.embedding), ".weight"), true);
    for (int32_t i = 0; i < config_.num_layers; ++i) {
      prefix_ = absl::StrCat(root, std::string(names_.layers), i, ".");
      Layer();
    }
    prefix_ = root;
    Norm(names_.final_norm);
    // A decoder that is stored alone was made to embed, for which any head will do.
    VocabularyRows(absl::StrCat(std::string(names_.head), ".weight"), !config_.tie_embeddings,
                   root.empty() ? kHeadless : "");
    return std::move(specs_);
  }

 private:
  // Rows of a stored matrix: `shard` of those that begin at `first`.
  struct Output {
    std::string_view name;
    int64_t stored_rows;
    int64_t first;
    ShardRange shard;
    bool is_rotated = false;
    int64_t zero_rows = 0;  // behind them
  };

  void Layer() {
    const ShardRange heads = Shard(config_.num_heads, tp_);
    const int64_t q = config_.head_dim * config_.num_heads;
    Norm(names_.input_norm);
    Columns(QkvOutputs(), config_.qkv_bias);
    QkNormWeights(names_.q_norm, config_.num_heads, heads);
    QkNormWeights(names_.k_norm, config_.num_kv_heads, kv_heads_);
    KvScales(names_.k, ".k_scale");
    KvScales(names_.v, ".v_scale");
    Rows(names_.o, q, Shard(q, tp_).count, config_.o_bias);
    Norm(names_.attention_output_norm);
    Norm(config_.facts.parallel_blocks ? std::string_view() : names_.mlp_norm);
    Columns(MlpOutputs(), config_.mlp_bias);
    Rows(names_.down, config_.intermediate_size, mlp_width_, config_.mlp_bias);
    Norm(names_.mlp_output_norm);
  }

  std::vector<Output> QkvOutputs() const {
    const int64_t dim = config_.head_dim;
    const int64_t q = config_.num_heads * dim, kv = config_.num_kv_heads * dim;
    const ShardRange q_rows = Shard(q, tp_),
                     kv_rows = {kv_heads_.begin * dim, kv_heads_.count * dim};
    if (names_.qkv.empty()) {
      return {{names_.q, q, 0, q_rows, true},
              {names_.k, kv, 0, kv_rows, true},
              {names_.v, kv, 0, kv_rows}};
    }
    const int64_t all = q + 2 * kv;
    return {{names_.qkv, all, 0, q_rows, true},
            {names_.qkv, all, q, kv_rows, true},
            {names_.qkv, all, q + kv, kv_rows}};
  }

  std::vector<Output> MlpOutputs() const {
    const int64_t mlp = config_.intermediate_size;
    const ShardRange rows = Shard(mlp, tp_);
    // Both activations make 0 of 0, which the columns of zeros in `down` take.
    const int64_t zeros = mlp_width_ - rows.count;
    const auto output = [&](std::string_view name, int64_t stored_rows, int64_t first) {
      return Output{name, stored_rows, first, rows, false, zeros};
    };
    if (!names_.gate_up.empty()) {
      return {output(names_.gate_up, 2 * mlp, 0), output(names_.gate_up, 2 * mlp, mlp)};
    }
    if (names_.gate.empty()) return {output(names_.up, mlp, 0)};
    return {output(names_.gate, mlp, 0), output(names_.up, mlp, 0)};
  }

  std::string Named(std::string_view name, const char* suffix) const {
    return absl::StrCat(prefix_, std::string(name), suffix);
  }

  // The type of a matrix of the layer, and the tensor with its scales, if it is stored with them.
  DType MatrixType(std::string_view name) const {
    return config_.quantization.IsEightBit(Named(name, "")) ? config_.quantization.dtype() : dtype_;
  }
  std::string ScalesOf(std::string_view name) const {
    const Quantization& how = config_.quantization;
    const bool stored = how.source == Quantization::Source::kStored;
    if (!stored || !IsEightBit(MatrixType(name))) return "";
    return Named(name, how.scale_suffix.c_str());
  }

  // A matrix of the layer without its size and parts.
  WeightSpec Matrix(std::string_view name) const {
    const DType dtype = MatrixType(name);
    const bool blocks = IsEightBit(dtype) && config_.quantization.scale_columns() != 0;
    return {.dtype = dtype, .block_scales = blocks};
  }

  // A vector of the whole width on every rank; without a name an empty one.
  void Vector(std::string_view name, const char* suffix, float dummy, float offset) {
    const int64_t hidden = config_.hidden_size;
    WeightSpec spec{.dtype = kNormDType, .dummy = dummy, .offset = offset};
    if (!name.empty()) {
      spec.rows = hidden;
      spec.parts.push_back({.name = Named(name, suffix), .shape = {hidden}, .rows = {0, hidden}});
    }
    specs_.push_back(std::move(spec));
  }

  void Norm(std::string_view name) {
    Vector(name, ".weight", 1, config_.facts.norm_offset);
    Vector(config_.facts.norm_bias ? name : std::string_view(), ".bias", 0, 0);
  }

  // The weights of the norm of queries or of keys, in the order of a loaded head.
  void QkNormWeights(std::string_view name, int64_t num_heads, ShardRange heads) {
    const int64_t dim = config_.head_dim;
    WeightSpec spec{.dtype = kNormDType, .dummy = 1, .offset = config_.facts.norm_offset};
    const auto add = [&](const std::string& stored, std::vector<int64_t> shape, ShardRange rows) {
      spec.rows += rows.count;
      spec.parts.push_back({.name = stored, .shape = std::move(shape), .rows = rows});
      spec.parts.back().order = head_order_;
    };
    const std::string stored = Named(name, ".weight");
    switch (config_.facts.qk_norm) {
      case QkNorm::kNone: break;
      case QkNorm::kHead: add(stored, {dim}, {0, dim}); break;
      case QkNorm::kWidth:
        add(stored, {num_heads * dim}, {heads.begin * dim, heads.count * dim});
        break;
      case QkNorm::kLayerHeads:
        if (!names_.norm_each_head) {
          add(stored, {num_heads, dim}, {heads.begin * dim, heads.count * dim});
          break;
        }
        // Those of other ranks' heads are named too, because they have to be there.
        for (int64_t h = 0; h < num_heads; ++h) {
          const bool mine = heads.begin <= h && h < heads.begin + heads.count;
          add(absl::StrCat(prefix_, std::string(name), h, ".weight"), {dim}, {0, mine ? dim : 0});
        }
    }
    specs_.push_back(std::move(spec));
  }

  // The scales of this rank's heads of an 8-bit cache: ones where the checkpoint has none.
  void KvScales(std::string_view projection, const char* ending) {
    WeightSpec spec{.dtype = DType::kF32, .rows = eight_bit_kv_ ? kv_heads_.count : 0, .dummy = 1};
    const std::string stored = eight_bit_kv_ ? StoredKvScales(projection, ending) : "";
    if (!stored.empty()) {
      spec.parts.push_back({.shape = {config_.num_kv_heads}, .rows = kv_heads_, .scales = stored});
    }
    specs_.push_back(std::move(spec));
  }

  // The tensor with the scales of the layer's keys or values, by the names that writers of
  // checkpoints use: of attention, of the projection, of the projection's output, or one of both.
  std::string StoredKvScales(std::string_view projection, const char* ending) const {
    if (checkpoint_ == nullptr) return "";
    const std::string_view attention = names_.o.substr(0, names_.o.rfind('.'));
    const bool fused = !names_.qkv.empty();
    std::vector<std::string> names = {Named(attention, ending),
                                      Named(fused ? names_.qkv : projection, ending)};
    if (!fused) names.push_back(Named(projection, ".output_scale"));
    names.push_back(Named(attention, ".kv_scale"));
    const auto stored = std::ranges::find_if(
        names, [this](const std::string& name) { return checkpoint_->tensors().contains(name); });
    return stored == names.end() ? "" : *stored;
  }

  // A matrix of integers instead of one of rectangles, if its parts are stored so; then the order
  // of its inputs, if they have one.
  void PushMatrix(WeightSpec weight, bool has_bias) {
    const std::optional<IntegerFormat>& format = config_.quantization.integers;
    const std::string module = weight.parts[0].name.substr(0, weight.parts[0].name.rfind('.'));
    WeightSpec order{.dtype = DType::kI32};
    if (config_.quantization.IsInteger(module)) {
      std::vector<PackedPart> parts;
      for (const WeightPart& part : weight.parts) {
        parts.push_back({.module = part.name.substr(0, part.name.rfind('.')),
                         .stored_rows = part.shape[0],
                         .stored_columns = part.shape[1],
                         .rows = part.rows,
                         .columns = part.columns,
                         .order = part.order,
                         .has_bias = has_bias});
        CHECK(part.zero_rows == 0 && part.columns.count == weight.columns);
      }
      weight.parts.clear();
      weight.dtype = format->dtype();
      weight.scale_columns = format->group;
      weight.has_zeros = format->has_zeros;
      if (format->any_order && !dummy_) {
        order.rows = weight.columns;
        order.source = std::make_shared<ColumnOrder>(*format, parts);
      }
      weight.source = std::make_shared<PackedMatrix>(*format, std::move(parts));
    }
    specs_.push_back(std::move(weight));
    specs_.push_back(std::move(order));
  }

  // A matrix and a bias whose outputs are split: the rank's slice of each, stacked.
  void Columns(const std::vector<Output>& outputs, bool has_bias) {
    const int64_t hidden = config_.hidden_size;
    WeightSpec weight = Matrix(outputs[0].name);
    weight.columns = hidden;
    WeightSpec bias{.dtype = bias_dtype_};
    for (const Output& output : outputs) {
      const ShardRange rows = {output.first + output.shard.begin, output.shard.count};
      const std::vector<int32_t> order = output.is_rotated ? head_order_ : std::vector<int32_t>();
      weight.rows += rows.count + output.zero_rows;
      weight.parts.push_back({.name = Named(output.name, ".weight"),
                              .shape = {output.stored_rows, hidden},
                              .rows = rows,
                              .columns = {0, hidden},
                              .order = order,
                              .zero_rows = output.zero_rows,
                              .scales = ScalesOf(output.name)});
      if (!has_bias) continue;
      bias.rows += rows.count + output.zero_rows;
      bias.parts.push_back({.name = Named(output.name, ".bias"),
                            .shape = {output.stored_rows},
                            .rows = rows,
                            .order = order,
                            .zero_rows = output.zero_rows});
    }
    PushMatrix(std::move(weight), has_bias);
    specs_.push_back(std::move(bias));
  }

  // A matrix whose inputs are split, `width` of them this rank's with columns of zeros; its bias is
  // rank 0's.
  void Rows(std::string_view name, int64_t inputs, int64_t width, bool has_bias) {
    const int64_t hidden = config_.hidden_size;
    const ShardRange shard = Shard(inputs, tp_);
    WeightSpec weight = Matrix(name);
    weight.rows = hidden;
    weight.columns = width;
    weight.parts.push_back({.name = Named(name, ".weight"),
                            .shape = {hidden, inputs},
                            .rows = {0, hidden},
                            .columns = shard,
                            .scales = ScalesOf(name)});
    WeightSpec bias{.dtype = bias_dtype_};
    if (has_bias) {
      bias.rows = tp_.rank == 0 ? hidden : 0;
      bias.parts.push_back(
          {.name = Named(name, ".bias"), .shape = {hidden}, .rows = {0, bias.rows}});
    }
    PushMatrix(std::move(weight), has_bias);
    specs_.push_back(std::move(bias));
  }

  void VocabularyRows(const std::string& name, bool present, const char* advice = "") {
    const int64_t hidden = config_.hidden_size;
    const int64_t local = Vocabulary::LocalRows(config_.vocab_size, tp_);
    const int64_t begin = std::min<int64_t>(tp_.rank * local, config_.vocab_size);
    const int64_t count = std::min(local, config_.vocab_size - begin);
    WeightSpec spec{.dtype = dtype_, .columns = hidden};
    if (present) {
      spec.rows = local;
      spec.parts.push_back({.name = name,
                            .shape = {config_.vocab_size, hidden},
                            .rows = {begin, count},
                            .columns = {0, hidden}});
      spec.parts.back().if_missing = advice;
    }
    specs_.push_back(std::move(spec));
  }

  const ModelConfig& config_;
  const TensorNames& names_;
  const TpInfo tp_;
  const Checkpoint* const checkpoint_;
  const DType dtype_;
  const DType bias_dtype_;
  const bool eight_bit_kv_;
  const bool dummy_;
  const ShardRange kv_heads_;
  const int64_t mlp_width_;  // of this rank, padded
  const std::vector<int32_t> head_order_;
  std::string prefix_;  // of the names of the layer under way
  std::vector<WeightSpec> specs_;
};

// The beginning of `name` by which the family skips it, or null.
const std::string_view* SkippedPrefix(const TensorNames& names, const std::string& name) {
  for (const std::string_view& prefix : names.skipped) {
    if (!prefix.empty() && name.starts_with(prefix)) return &prefix;
  }
  return nullptr;
}

// Whether an order of columns is any other than that of the stored ones.
bool SortsColumns(const TensorView& order, Backend& backend) {
  if (order.empty()) return false;
  std::vector<int32_t> columns(static_cast<size_t>(order.size()));
  backend.CopyToHost(columns.data(), order.data, columns.size() * sizeof(int32_t));
  backend.Synchronize();
  return !std::ranges::is_sorted(columns);
}

// Takes the tensors in the order of SpecWriter.
DecoderWeights Assemble(const ModelConfig& config, TpInfo tp, Weights storage, Backend& backend) {
  size_t at = 0;
  const auto next = [&storage, &at]() { return storage[at++]; };
  const auto next_linear = [&next, &backend]() {
    const TensorView weight = next(), order = next();
    return Linear(weight, next(), SortsColumns(order, backend) ? order : TensorView());
  };
  const auto next_norm = [&next]() {
    const TensorView weight = next();
    return NormWeights{weight, next()};
  };
  DecoderWeights out;
  const TensorView embedding = next();
  for (int32_t i = 0; i < config.num_layers; ++i) {
    DecoderLayer layer;
    layer.input_norm = next_norm();
    layer.qkv = next_linear();
    layer.q_norm = next();
    layer.k_norm = next();
    layer.k_scales = next();
    layer.v_scales = next();
    layer.o = next_linear();
    layer.attention_output_norm = next_norm();
    layer.mlp_norm = next_norm();
    layer.gate_up = next_linear();
    layer.down = next_linear();
    layer.mlp_output_norm = next_norm();
    layer.window = config.layer_is_sliding[i] ? config.sliding_window : 0;
    layer.rotation = config.layer_rotation[i];
    out.layers.push_back(layer);
  }
  out.final_norm = next_norm();
  const TensorView head = next();
  CHECK_EQ(at, storage.size());
  out.vocabulary = Vocabulary(embedding, config.tie_embeddings ? embedding : head, tp);
  out.storage = std::move(storage);
  return out;
}

// Tensors that the decoder does without: rotary tables, which old converters stored although the
// config implies them, a head that repeats a tied embedding, and what the family skips.
bool IsIgnorable(const ModelConfig& config, const std::string& name) {
  const TensorNames& names = config.names;
  if (name.ends_with("rotary_emb.inv_freq") || config.quantization.Unread(name)) return true;
  if (config.tie_embeddings && name == std::string(names.head) + ".weight") return true;
  return SkippedPrefix(names, name) != nullptr;
}

// Says which tensors stay unread, one line for each beginning of a name.
void LogSkipped(const ModelConfig& config, const Checkpoint& checkpoint) {
  for (const auto& [prefix, count] : SkippedTensors(config, checkpoint)) {
    Log(Severity::kInfo, "tensors are not part of the decoder and stay unread",
        {{"prefix", prefix}, {"count", count}});
  }
}

// Warns where keys and values are rounded to 8 bits without having been measured for it.
void LogMissingKvScales(const ModelConfig& config, std::span<const WeightSpec> specs) {
  int64_t stored = 0;  // tensors of scales: of keys and of values for each layer
  for (const WeightSpec& spec : specs) {
    stored += std::ranges::any_of(spec.parts, [](const auto& part) { return part.name.empty(); });
  }
  if (stored == int64_t{2} * config.num_layers) return;
  Log(Severity::kWarning,
      "--kv-cache-dtype fp8: the checkpoint lacks scales of keys or values, and they are 1: what "
      "is "
      "above 448 is clipped, and what is below 2^-10 becomes 0",
      {{"layers", config.num_layers}, {"stored_scales", stored}});
}

}  // namespace

std::map<std::string, int64_t> SkippedTensors(const ModelConfig& config,
                                              const Checkpoint& checkpoint) {
  std::map<std::string, int64_t> skipped;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const std::string_view* prefix = SkippedPrefix(config.names, name);
    if (prefix != nullptr) ++skipped[std::string(*prefix)];
  }
  return skipped;
}

absl::Status DecoderWeights::Check(const Checkpoint& checkpoint, const ModelConfig& config,
                                   TpInfo tp, const ModelOptions& options) {
  return Weights::Check(checkpoint, SpecWriter(config, tp, options, &checkpoint).Write(),
                        [&config](const std::string& name) { return IsIgnorable(config, name); });
}

absl::StatusOr<DecoderWeights> DecoderWeights::Load(const std::string& dir,
                                                    const ModelConfig& config, TpInfo tp,
                                                    const ModelOptions& options, Backend& backend) {
  if (options.dummy_weights) {
    ASSIGN_OR_RETURN(Weights storage,
                     Weights::MakeDummy(SpecWriter(config, tp, options, nullptr).Write(), backend));
    return Assemble(config, tp, std::move(storage), backend);
  }
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(dir));
  const std::vector<WeightSpec> specs = SpecWriter(config, tp, options, &checkpoint).Write();
  if (tp.rank == 0) LogSkipped(config, checkpoint);
  if (tp.rank == 0 && options.eight_bit_kv) LogMissingKvScales(config, specs);
  const auto ignorable = [&config](const std::string& name) { return IsIgnorable(config, name); };
  const WeightReading how{.threads = options.load_threads, .in_place = options.weights_in_place};
  ASSIGN_OR_RETURN(Weights storage, Weights::Load(checkpoint, specs, ignorable, how, backend));
  return Assemble(config, tp, std::move(storage), backend);
}

int64_t DecoderWeights::TotalBytes(const ModelConfig& config, TpInfo tp,
                                   const ModelOptions& options) {
  return Weights::TotalBytes(SpecWriter(config, tp, options, nullptr).Write());
}

}  // namespace quire

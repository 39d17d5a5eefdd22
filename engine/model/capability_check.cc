// One comparison for each limit; all reasons are collected, so that one start names them all.
#include "engine/model/capability_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/checkpoint/families.h"
#include "engine/model/checkpoint/tp.h"
#include "engine/model/model_options.h"

namespace quire {
namespace {

constexpr char kUseCpu[] = "; serve it with --device cpu";

class Reasons {
 public:
  explicit Reasons(const DeviceLimits& limits)
      : kernels_(std::string(limits.kernels) + " "), limits_(limits) {}

  void CheckModel(const ModelConfig& model, int32_t ranks) {
    const auto& dims = limits_.head_dims;
    if (!dims.empty() && std::ranges::find(dims, model.head_dim) == dims.end()) {
      Add("head_dim ", model.head_dim, ": the ", kernels_, "attention kernels take ",
          absl::StrJoin(dims, " and "), kUseCpu);
    }
    const auto kv_heads = static_cast<int32_t>(KvShard(model.num_kv_heads, {.size = ranks}).count);
    const int32_t group = model.num_heads / ranks / kv_heads;
    if (group > limits_.max_group) {
      Add("num_attention_heads ", model.num_heads, ": ", group,
          " query heads for each of num_key_value_heads ", model.num_kv_heads, "; the ", kernels_,
          "attention kernels take at most ", limits_.max_group, kUseCpu);
    }
    if (model.hidden_size % limits_.width_multiple != 0) {
      Add("hidden_size ", model.hidden_size, ": the ", kernels_, "kernels take multiples of ",
          limits_.width_multiple, kUseCpu);
    }
    if (model.hidden_size > limits_.max_hidden) {
      Add("hidden_size ", model.hidden_size, ": the ", kernels_, "norm kernels take at most ",
          limits_.max_hidden, kUseCpu);
    }
    if (model.vocab_size > limits_.max_vocab) {
      Add("vocab_size ", model.vocab_size, ": the ", kernels_, "sampling kernel takes at most ",
          limits_.max_vocab, kUseCpu);
    }
  }

  // The facts of a family that need an operation of their own.
  void CheckFamily(const ModelConfig& model) {
    const DecoderFacts& facts = model.facts;
    const FamilyKernels& has = limits_.family_kernels;
    const Family* family = FindFamily(model.architecture);
    const bool norms_before =
        family == nullptr || !(family->names.input_norm.empty() ||
                               (family->names.mlp_norm.empty() && !facts.parallel_blocks));
    const bool layer_norms = facts.norm == NormKind::kLayer || facts.qk_norm == QkNorm::kLayerHeads;
    Need(layer_norms, has.layer_norm, "layer norms", model);
    Need(facts.parallel_blocks, has.add_scaled, "parallel blocks", model);
    Need(!norms_before, has.add_scaled, "blocks without a norm before them", model);
    Need(facts.residual_scale != 1, has.add_scaled, "scaled residuals", model);
    Need(facts.embedding_scale != 1, has.scale, "scaled embeddings", model);
    Need(facts.logit_scale != 1, has.scale, "scaled logits", model);
    Need(facts.logit_soft_cap != 0, has.scale, "soft caps of logits", model);
    Need(facts.activation == Activation::kGelu, has.gelu, "GELU", model);
    Need(facts.attention_soft_cap != 0, has.attention_soft_cap, "soft caps of attention", model);
  }

  void CheckSettings(const KernelDemand& demand) {
    // One row of the tables is padding.
    if (demand.max_num_seqs >= limits_.max_rows) {
      Add("--max-num-seqs ", demand.max_num_seqs, ": the ", kernels_,
          "attention kernels take at most ", limits_.max_rows - 1, "; lower it");
    }
    if (demand.max_model_len > limits_.max_context) {
      Add("--max-model-len ", demand.max_model_len, ": the ", kernels_,
          "sampling kernel takes at most ", limits_.max_context, "; lower it");
    }
    const int64_t width = PaddedWidth(demand.model.intermediate_size / demand.ranks,
                                      {.width_multiple = limits_.width_multiple});
    if (demand.max_num_batched_tokens > limits_.max_gated / width) {
      Add("--max-num-batched-tokens ", demand.max_num_batched_tokens, ": with intermediate_size ",
          demand.model.intermediate_size, " the ", kernels_, "feed-forward kernels take at most ",
          limits_.max_gated / width, "; lower it");
    }
  }

  void CheckTypes(DType weights, DType kv) {
    const auto& types = limits_.weight_dtypes;
    if (std::ranges::find(types, weights) == types.end()) {
      const auto name = [](std::string* out, DType type) { out->append(Name(type)); };
      Add("--dtype ", Name(weights), " runs on the cpu only: the ", kernels_, "kernels take ",
          absl::StrJoin(types, " and ", name));
    } else if (limits_.kv_as_weights && kv != weights) {
      Add("--kv-cache-dtype ", Name(kv), ": the ", kernels_,
          "kernels keep the KV cache in the type of the weights, ", Name(weights), "; use auto");
    }
  }

  absl::Status status() const {
    if (reasons_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(reasons_, "\n"));
  }

 private:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    reasons_.push_back(absl::StrCat(parts...));
  }

  void Need(bool needed, bool has, const char* what, const ModelConfig& model) {
    if (!needed || has) return;
    Add("the ", kernels_, "backend cannot do ", what, " of ", model.architecture,
        " yet; --device cpu can");
  }

  const std::string kernels_;
  const DeviceLimits& limits_;
  std::vector<std::string> reasons_;
};

}  // namespace

absl::Status CheckDeviceCan(const KernelDemand& demand, const DeviceLimits& limits) {
  Reasons reasons(limits);
  reasons.CheckModel(demand.model, demand.ranks);
  reasons.CheckFamily(demand.model);
  reasons.CheckSettings(demand);
  reasons.CheckTypes(demand.weight_dtype, demand.kv_dtype);
  return reasons.status();
}

}  // namespace quire

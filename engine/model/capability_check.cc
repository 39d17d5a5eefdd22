// One comparison for each limit; all reasons are collected, so that one start names them all.
#include "engine/model/capability_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/model_options.h"

namespace quire {
namespace {

constexpr char kUseCpu[] = "; serve it with --device cpu";
constexpr char kOrRanks[] = " or another number of ranks";

class Reasons {
 public:
  explicit Reasons(const DeviceLimits& limits)
      : kernels_(std::string(limits.kernels) + " "), limits_(limits) {}

  void CheckModel(const ModelConfig& model) {
    if (model.head_dim % limits_.head_multiple != 0 || model.head_dim > limits_.max_head_dim) {
      Add("head_dim ", model.head_dim, ": the ", kernels_, "attention kernels take multiples of ",
          limits_.head_multiple, " up to ", limits_.max_head_dim, kUseCpu);
    }
    if (model.hidden_size % limits_.width_multiple != 0) {
      Add("hidden_size ", model.hidden_size, ": the ", kernels_, "kernels take multiples of ",
          limits_.width_multiple, kUseCpu);
    }
    if (model.hidden_size > limits_.max_hidden) {
      Add("hidden_size ", model.hidden_size, ": the ", kernels_, "norm kernels take at most ",
          limits_.max_hidden, kUseCpu);
    }
    const int64_t heads = int64_t{model.num_heads} * model.head_dim;
    if (model.facts.qk_norm == QkNorm::kWidth && heads > limits_.max_hidden) {
      Add("num_attention_heads * head_dim ", heads, ": the ", kernels_,
          "norm kernels, which normalise all heads at once, take at most ", limits_.max_hidden,
          kUseCpu);
    }
    if (model.facts.attention_soft_cap > limits_.max_soft_cap) {
      Add("attn_logit_softcapping ", model.facts.attention_soft_cap, ": the ", kernels_,
          "attention kernels take at most ", limits_.max_soft_cap, kUseCpu);
    }
    if (model.vocab_size > limits_.max_vocab) {
      Add("vocab_size ", model.vocab_size, ": the ", kernels_, "sampling kernel takes at most ",
          limits_.max_vocab, kUseCpu);
    }
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
    const int64_t group = demand.model.num_heads / demand.model.num_kv_heads;
    const int64_t most = limits_.max_group_rows / (group * group);
    if (demand.max_num_batched_tokens > most) {
      Add("--max-num-batched-tokens ", demand.max_num_batched_tokens, ": with ", group,
          " query heads for each key/value head the ", kernels_, "attention kernels take at most ",
          most, "; lower it");
    }
    CheckElements(demand, "intermediate_size", demand.model.intermediate_size, MlpWidth(demand));
    CheckElements(demand, "hidden_size", demand.model.hidden_size, demand.model.hidden_size);
  }

  // The widths of the rows that are inputs of 8-bit matrices, on each rank.
  void CheckEightBit(const KernelDemand& demand) {
    const ModelConfig& model = demand.model;
    if (!model.quantization.eight_bit()) return;
    const int64_t heads = int64_t{model.num_heads} / demand.ranks * model.head_dim;
    const std::string ranks = absl::StrCat(" with --tensor-parallel-size ", demand.ranks);
    CheckEightBitWidth(absl::StrCat("hidden_size ", model.hidden_size), model.hidden_size, "");
    CheckEightBitWidth(absl::StrCat("num_attention_heads * head_dim of a rank ", heads, ranks),
                       heads, kOrRanks);
    CheckEightBitWidth(absl::StrCat("intermediate_size of a rank ", MlpWidth(demand), ranks),
                       MlpWidth(demand), kOrRanks);
  }

  void CheckTypes(DType weights, DType kv) {
    const auto& types = limits_.weight_dtypes;
    if (std::ranges::find(types, weights) == types.end()) {
      const auto name = [](std::string* out, DType type) { out->append(Name(type)); };
      Add("--dtype ", Name(weights), " runs on the cpu only: the ", kernels_, "kernels take ",
          absl::StrJoin(types, " and ", name));
    } else if (limits_.kv_as_weights && kv != weights && kv != DType::kE4M3) {
      Add("--kv-cache-dtype ", Name(kv), ": the ", kernels_,
          "kernels keep the KV cache in the type of the weights, ", Name(weights),
          ", or in 8 bits; use auto or fp8");
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

  // A rank's share as it is computed.
  int64_t MlpWidth(const KernelDemand& demand) const {
    const bool eight_bit = demand.model.quantization.eight_bit();
    return PaddedWidth(demand.model.intermediate_size / demand.ranks,
                       {.width_multiple = limits_.MlpMultiple(eight_bit)});
  }

  // `what` names the width, and `or_ranks` what else a user may change.
  void CheckEightBitWidth(const std::string& what, int64_t width, const char* or_ranks) {
    const int64_t multiple = limits_.eight_bit_multiple, most = limits_.max_eight_bit_width;
    if (width % multiple == 0 && width <= most) return;
    Add(what, ": the ", kernels_, "kernels of 8-bit matrices take multiples of ", multiple,
        " up to ", most, "; serve it with --device cpu", or_ranks);
  }

  // `held`: the elements of a token on a rank.
  void CheckElements(const KernelDemand& demand, const char* key, int32_t width, int64_t held) {
    const int64_t most = limits_.max_elements / held;
    if (demand.max_num_batched_tokens <= most) return;
    Add("--max-num-batched-tokens ", demand.max_num_batched_tokens, ": with ", key, " ", width,
        " the ", kernels_, "elementwise kernels take at most ", most, "; lower it");
  }

  const std::string kernels_;
  const DeviceLimits& limits_;
  std::vector<std::string> reasons_;
};

}  // namespace

absl::Status CheckDeviceCan(const KernelDemand& demand, const DeviceLimits& limits) {
  Reasons reasons(limits);
  reasons.CheckModel(demand.model);
  reasons.CheckSettings(demand);
  reasons.CheckEightBit(demand);
  reasons.CheckTypes(demand.weight_dtype, demand.kv_dtype);
  return reasons.status();
}

}  // namespace quire

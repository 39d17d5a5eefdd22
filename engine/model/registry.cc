// The literal table of architectures, and the two entries of model.h that look into it.
#include "engine/model/registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/decoder.h"
#include "kernels/check.h"

namespace quire {
namespace {

absl::StatusOr<std::unique_ptr<Model>> LoadDecoder(const ModelSource& source, Backend& backend) {
  const auto& [dir, config, tp, options] = source;
  ASSIGN_OR_RETURN(DecoderWeights weights, DecoderWeights::Load(dir, config, tp, options, backend));
  ASSIGN_OR_RETURN(Activations activations, Activations::Create(config, tp, options, backend));
  return std::make_unique<Decoder>(config, tp, std::move(weights), std::move(activations), backend);
}

ModelMemory PlanDecoder(const ModelConfig& config, TpInfo tp, const ModelOptions& options) {
  return {.weight_bytes = DecoderWeights::TotalBytes(config, tp, options),
          .arena_bytes = Activations::TotalBytes(config, tp, options)};
}

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", LoadDecoder, PlanDecoder},
    {"MistralForCausalLM", LoadDecoder, PlanDecoder},
    {"Qwen2ForCausalLM", LoadDecoder, PlanDecoder},
    {"Qwen3ForCausalLM", LoadDecoder, PlanDecoder},
};

}  // namespace

const Architecture* FindArchitecture(const std::string& name) {
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
  }
  return nullptr;
}

ModelMemory PlanModelMemory(const ModelConfig& config, TpInfo tp, const ModelOptions& options) {
  const Architecture* architecture = FindArchitecture(config.architecture);
  CHECK(architecture != nullptr && config.CheckTensorParallel(tp.size).ok());
  return architecture->plan(config, tp, options);
}

absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& dir, const ModelConfig& config,
                                                 TpInfo tp, const ModelOptions& options,
                                                 Backend& backend) {
  RETURN_IF_ERROR(config.CheckTensorParallel(tp.size));
  CHECK(0 <= tp.rank && tp.rank < tp.size);
  CHECK(options.max_tokens > 0 && options.max_logit_rows > 0 && options.max_model_len > 0);
  const Architecture* architecture = FindArchitecture(config.architecture);
  if (architecture == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(dir, "/config.json: no model is built for ", config.architecture));
  }
  return architecture->load({dir, config, tp, options}, backend);
}

}  // namespace quire

// Builds each shape of model; the family of the architecture chooses the shape.
#include "engine/model/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/families.h"
#include "engine/model/decoder.h"
#include "kernels/check.h"

namespace quire {
namespace {

absl::StatusOr<std::unique_ptr<Model>> LoadDecoder(const std::string& dir,
                                                   const ModelConfig& config, TpInfo tp,
                                                   const ModelOptions& options, Backend& backend) {
  ASSIGN_OR_RETURN(DecoderWeights weights, DecoderWeights::Load(dir, config, tp, options, backend));
  ASSIGN_OR_RETURN(Activations activations, Activations::Create(config, tp, options, backend));
  return std::make_unique<Decoder>(config, tp, std::move(weights), std::move(activations), backend);
}

ModelMemory PlanDecoder(const ModelConfig& config, TpInfo tp, const ModelOptions& options) {
  return {.weight_bytes = DecoderWeights::TotalBytes(config, tp, options),
          .arena_bytes = Activations::TotalBytes(config, tp, options)};
}

struct Builder {
  absl::StatusOr<std::unique_ptr<Model>> (*load)(const std::string& dir, const ModelConfig& config,
                                                 TpInfo tp, const ModelOptions& options,
                                                 Backend& backend);
  ModelMemory (*plan)(const ModelConfig& config, TpInfo tp, const ModelOptions& options);
  absl::Status (*check)(const Checkpoint& checkpoint, const ModelConfig& config, TpInfo tp,
                        const ModelOptions& options);
};

Builder BuilderOf(ModelShape shape) {
  switch (shape) {
    case ModelShape::kDecoder: return {LoadDecoder, PlanDecoder, DecoderWeights::Check};
  }
  CHECK(false);
  return {};
}

}  // namespace

ModelMemory PlanModelMemory(const ModelConfig& config, TpInfo tp, const ModelOptions& options) {
  const Family* family = FindFamily(config.architecture);
  CHECK(family != nullptr && config.CheckTensorParallel(tp.size).ok());
  return BuilderOf(family->shape).plan(config, tp, options);
}

absl::Status CheckTensors(const Checkpoint& checkpoint, const ModelConfig& config, TpInfo tp,
                          const ModelOptions& options) {
  const Family* family = FindFamily(config.architecture);
  CHECK(family != nullptr && config.CheckTensorParallel(tp.size).ok());
  return BuilderOf(family->shape).check(checkpoint, config, tp, options);
}

absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& dir, const ModelConfig& config,
                                                 TpInfo tp, const ModelOptions& options,
                                                 Backend& backend) {
  RETURN_IF_ERROR(config.CheckTensorParallel(tp.size));
  CHECK(0 <= tp.rank && tp.rank < tp.size);
  CHECK(options.max_tokens > 0 && options.max_logit_rows > 0 && options.max_model_len > 0);
  const Family* family = FindFamily(config.architecture);
  if (family == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(dir, "/config.json: no model is built for ", config.architecture));
  }
  return BuilderOf(family->shape).load(dir, config, tp, options, backend);
}

}  // namespace quire

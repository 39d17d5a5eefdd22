// The operations of kernels/ops.h and family_operations.h on a CUDA device, in files of the same
// names. Each CHECKs its shapes and enqueues kernels on the device's stream. None allocates,
// synchronises, or reads device memory on the host.
//
// Activations, the residual stream, weights and KV have one type, bf16 or f16; weights and the
// input of a product may be 8-bit, weights also packed; norm weights and biases have that type or
// f32; logits and the rope table f32. Block sizes are 16, 32 and 64; device_limits.h has the other
// shapes.
#pragma once

#include "kernels/buffer.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/family_operations.h"
#include "kernels/ops.h"
#include "kernels/reading.h"
#include "kernels/step_message.h"

namespace quire::cuda {

void BeginStep(const BeginStepParams& p, const Device& device);
void EndStep(const EndStepParams& p, const Device& device);
void FillUniform(const FillUniformParams& p, const Device& device);
void Embed(const EmbedParams& p, const Device& device);
void RmsNorm(const RmsNormParams& p, const Device& device);
// `settled`: an attention of the step was enqueued before this call, so the kernel may read
// positions and slots before its wait (rule 2 of launch.h).
void RopeStoreKv(const RopeStoreKvParams& p, const Device& device, bool settled = false);
void SiluMul(const SiluMulParams& p, const Device& device);
void Quantize(const QuantizeParams& p, const Device& device);
void GatherRows(const GatherRowsParams& p, const Device& device);
void GatherColumns(const GatherColumnsParams& p, const Device& device);
void LayerNorm(const LayerNormParams& p, const Device& device);
void AddScaled(const AddScaledParams& p, const Device& device);
void Scale(const ScaleParams& p, const Device& device);
void Gelu(const GeluParams& p, const Device& device);
void Sample(const SampleParams& p, const Device& device);
void Score(const ScoreParams& p, const Device& device);
void Pool(const PoolParams& p, const Device& device);

}  // namespace quire::cuda

// The operations of kernels/ops.h on a CUDA device, one function per file of the same name: each
// checks its shapes and enqueues kernels on the device's stream; none allocates, none synchronises,
// none reads device memory on the host. Activations, weights and KV are of one type, bf16 or f16
// (the residual stream too); norm weights and biases of that type or f32; logits f32; the rope
// table f32. Head dims 64 and 128; 1 to 16 query heads a key/value head; block sizes 16, 32, 64.
#pragma once

#include "kernels/buffer.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"
#include "kernels/step_message.h"

namespace quire::cuda {

void BeginStep(const BeginStepParams& p, const Device& device);
void EndStep(const EndStepParams& p, const Device& device);
void FillUniform(const FillUniformParams& p, const Device& device);
void Embed(const EmbedParams& p, const Device& device);
void RmsNorm(const RmsNormParams& p, const Device& device);
// `settled`: an attention of the step is behind it on the stream, so that positions and slots may
// be read before the wait (launch.h).
void RopeStoreKv(const RopeStoreKvParams& p, const Device& device, bool settled = false);
void SiluMul(const SiluMulParams& p, const Device& device);
void GatherRows(const GatherRowsParams& p, const Device& device);
void Sample(const SampleParams& p, const Device& device);

}  // namespace quire::cuda

// The operations of kernels/ops.h on the CPU, one function per file of the same name. Activations
// are f32; weights, norm weights, biases and the KV cache f32, bf16 or f16.
#pragma once

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace quire::cpu {

void Embed(const EmbedParams& p, ThreadPool& pool);
void RmsNorm(const RmsNormParams& p, ThreadPool& pool);
void MatMul(const MatMulParams& p, ThreadPool& pool);
void RopeStoreKv(const RopeStoreKvParams& p, ThreadPool& pool);
void PagedAttention(const PagedAttentionParams& p, ThreadPool& pool);
void SiluMul(const SiluMulParams& p, ThreadPool& pool);
void GatherRows(const GatherRowsParams& p, ThreadPool& pool);
void Sample(const SampleParams& p, ThreadPool& pool);

}  // namespace quire::cpu

// RopeStoreKv: normalises, rotates and stores. Tokens are independent and split over the threads.
#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {
namespace {

// The address in the pool of a token's K (kind 0) or V (kind 1) of one head.
void* PlaceOf(const KvLayerView& kv, int64_t slot, int kind, int64_t head) {
  const int64_t block = slot / kv.block_size, token = slot % kv.block_size;
  CHECK(slot >= 0 && block < kv.num_blocks);
  const int64_t at =
      block * kv.block_stride + kind * kv.kv_stride + head * kv.head_stride + token * kv.head_dim;
  return static_cast<char*>(kv.base) + at * static_cast<int64_t>(SizeOf(kv.dtype));
}

void OneToken(const RopeStoreKvParams& p, int64_t t, const VectorKernels& kernels) {
  const int64_t dim = p.kv.head_dim, half = dim / 2;
  const int64_t heads = p.num_heads, kv_heads = p.kv.num_kv_heads;
  const float* cos = p.cos_sin.row<float>(p.positions[t]);
  float* row = p.qkv.row<float>(t);
  for (int64_t h = 0; h < heads + kv_heads; ++h) {
    float* head = row + h * dim;
    const TensorView& norm = h < heads ? p.q_norm : p.k_norm;
    if (!norm.empty()) {
      kernels.rms_norm(head, Elements{norm.data, norm.dtype}, p.norm_eps, head, dim);
    }
    kernels.rotate(head, cos, cos + half, half);
  }
  for (int64_t h = 0; h < kv_heads; ++h) {
    const float* k = row + (heads + h) * dim;
    const float* v = k + kv_heads * dim;
    kernels.narrow(k, PlaceOf(p.kv, p.slots[t], 0, h), p.kv.dtype, dim);
    kernels.narrow(v, PlaceOf(p.kv, p.slots[t], 1, h), p.kv.dtype, dim);
  }
}

}  // namespace

void RopeStoreKv(const RopeStoreKvParams& p, const Cores& cores) {
  const int64_t dim = p.kv.head_dim, width = (p.num_heads + int64_t{2} * p.kv.num_kv_heads) * dim;
  CHECK(p.qkv.dtype == DType::kF32 && p.qkv.dim[1] == width && dim % 2 == 0);
  CHECK(p.cos_sin.dtype == DType::kF32 && p.cos_sin.dim[1] == dim);
  cores.pool.ParallelFor(p.qkv.dim[0], RowsPerRange(width / 2), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      CHECK(p.positions[t] >= 0 && p.positions[t] < p.cos_sin.dim[0]);
      OneToken(p, t, cores.kernels);
    }
  });
}

}  // namespace quire::cpu

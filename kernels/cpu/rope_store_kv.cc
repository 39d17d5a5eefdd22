// RopeStoreKv: normalises, rotates and stores. Tokens are independent and split over the threads.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/row_scale.h"

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

// Writes a head's K (kind 0) or V (kind 1) to its place in the pool.
void StoreHead(const RopeStoreKvParams& p, int64_t t, int kind, int64_t head,
               const VectorKernels& kernels) {
  const KvLayerView& kv = p.kv;
  const int64_t first = p.num_heads + kind * int64_t{kv.num_kv_heads};
  const float* from = p.qkv.row<float>(t) + (first + head) * kv.head_dim;
  void* const place = PlaceOf(kv, p.slots[t], kind, head);
  if (kv.dtype != DType::kE4M3) return kernels.narrow(from, place, kv.dtype, kv.head_dim);
  const float inverse = InverseOf((kind == 0 ? kv.k_scales : kv.v_scales)[head]);
  auto* to = static_cast<E4M3*>(place);
  for (int32_t i = 0; i < kv.head_dim; ++i) to[i] = FromFloat<E4M3>(from[i] * inverse);
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
    for (int kind = 0; kind < 2; ++kind) StoreHead(p, t, kind, h, kernels);
  }
}

}  // namespace

void RopeStoreKv(const RopeStoreKvParams& p, const Cores& cores) {
  const int64_t dim = p.kv.head_dim, width = (p.num_heads + int64_t{2} * p.kv.num_kv_heads) * dim;
  CHECK(p.qkv.dtype == DType::kF32 && p.qkv.dim[1] == width && dim % 2 == 0);
  CHECK(p.cos_sin.dtype == DType::kF32 && p.cos_sin.dim[1] == dim);
  CHECK_EQ(p.kv.dtype == DType::kE4M3, p.kv.k_scales != nullptr && p.kv.v_scales != nullptr);
  cores.pool.ParallelFor(p.qkv.dim[0], RowsPerRange(width / 2), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      CHECK(p.positions[t] >= 0 && p.positions[t] < p.cos_sin.dim[0]);
      OneToken(p, t, cores.kernels);
    }
  });
}

}  // namespace quire::cpu

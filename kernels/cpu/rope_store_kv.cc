// RopeStoreKv: one token at a time: normalise, rotate, store.
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {
namespace {

void Normalise(float* head, const TensorView& weight, int64_t dim, float eps) {
  if (weight.empty()) return;
  float sum = 0;
  for (int64_t i = 0; i < dim; ++i) sum += head[i] * head[i];
  const float factor = 1.0f / std::sqrt(sum / static_cast<float>(dim) + eps);
  DispatchFloat(weight.dtype, [&](auto tag) {
    using W = decltype(tag);
    for (int64_t i = 0; i < dim; ++i) head[i] = head[i] * factor * ToFloat(weight.ptr<W>()[i]);
  });
}

void Rotate(float* head, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

template <typename C>
void Store(const KvLayerView& kv, int64_t slot, int kind, int64_t head, const float* from) {
  const int64_t block = slot / kv.block_size, token = slot % kv.block_size;
  DCHECK(block >= 0 && block < kv.num_blocks);
  C* to = static_cast<C*>(kv.base) + block * kv.block_stride + kind * kv.kv_stride +
          head * kv.head_stride + token * kv.head_dim;
  for (int64_t i = 0; i < kv.head_dim; ++i) to[i] = FromFloat<C>(from[i]);
}

}  // namespace

void RopeStoreKv(const RopeStoreKvParams& p, ThreadPool& pool) {
  const int64_t dim = p.kv.head_dim, half = dim / 2;
  const int64_t heads = p.num_heads, kv_heads = p.kv.num_kv_heads;
  CHECK(p.qkv.dtype == DType::kF32 && p.qkv.dim[1] == (heads + 2 * kv_heads) * dim);
  CHECK(p.cos_sin.dtype == DType::kF32 && p.cos_sin.dim[1] == dim);
  DispatchFloat(p.kv.dtype, [&](auto tag) {
    using C = decltype(tag);
    pool.ParallelFor(p.qkv.dim[0], 4, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const float* cos = p.cos_sin.row<float>(p.positions[t]);
        float* row = p.qkv.row<float>(t);
        for (int64_t h = 0; h < heads + kv_heads; ++h) {
          float* head = row + h * dim;
          Normalise(head, h < heads ? p.q_norm : p.k_norm, dim, p.norm_eps);
          Rotate(head, cos, cos + half, half);
          if (h >= heads) Store<C>(p.kv, p.slots[t], 0, h - heads, head);
        }
        for (int64_t h = 0; h < kv_heads; ++h) {
          Store<C>(p.kv, p.slots[t], 1, h, row + (heads + kv_heads + h) * dim);
        }
      }
    });
  });
}

}  // namespace quire::cpu

// PagedAttention: online softmax over the keys in order of position.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {
namespace {

template <typename C>
void Attend(const PagedAttentionParams& p, int64_t s, int64_t t, int64_t head) {
  const KvLayerView& kv = p.kv;
  const int64_t dim = kv.head_dim;
  const int64_t position = p.context_len[s] - (p.query_begin[s + 1] - t);
  const int64_t first = p.window > 0 ? std::max<int64_t>(0, position - p.window + 1) : 0;
  const int64_t kv_head = head / (p.num_heads / kv.num_kv_heads);
  const int32_t* blocks = p.block_table + p.table_row[s] * p.table_stride;
  const float* q = p.q.row<float>(t) + head * dim;
  float* out = p.out.row<float>(t) + head * dim;
  std::vector<float> sum(dim, 0.0f);
  float top = -std::numeric_limits<float>::infinity(), total = 0;
  for (int64_t pos = first; pos <= position; ++pos) {
    const C* k = static_cast<const C*>(kv.base) + blocks[pos / kv.block_size] * kv.block_stride +
                 kv_head * kv.head_stride + pos % kv.block_size * dim;
    const C* v = k + kv.kv_stride;
    float score = 0;
    for (int64_t i = 0; i < dim; ++i) score += q[i] * ToFloat(k[i]);
    score *= p.scale;
    const float new_top = std::max(top, score);
    const float keep = std::exp(top - new_top), weight = std::exp(score - new_top);
    top = new_top;
    total = total * keep + weight;
    for (int64_t i = 0; i < dim; ++i) sum[i] = sum[i] * keep + weight * ToFloat(v[i]);
  }
  for (int64_t i = 0; i < dim; ++i) out[i] = sum[i] / total;
}

}  // namespace

void PagedAttention(const PagedAttentionParams& p, ThreadPool& pool) {
  for (int64_t s = 0; s < p.num_seqs; ++s) {
    const int64_t queries = p.query_begin[s + 1] - p.query_begin[s];
    pool.ParallelFor(queries * p.num_heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        DispatchFloat(p.kv.dtype, [&](auto tag) {
          Attend<decltype(tag)>(p, s, p.query_begin[s] + i / p.num_heads, i % p.num_heads);
        });
      }
    });
  }
}

}  // namespace quire::cpu

// Attention's test fixtures: shapes of heads, sequences over a poisoned pool (Batch) with their
// results in double arithmetic, and the operation with device memory of its own (Attention).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/attention/paged_attention.h"
#include "tests/gpu/device_array.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/shuffled_blocks.h"

namespace quire::gpu {

using cuda::AttentionLimits;
using cuda::Device;

struct Shape {
  int32_t heads, kv_heads, head_dim, block_size, window = 0;
  DType dtype = DType::kBF16;
  int64_t block_padding = 0;  // elements from the end of a block to the next
  float soft_cap = 0;
  bool eight_bit_kv = false;

  DType kv_dtype() const { return eight_bit_kv ? DType::kE4M3 : dtype; }
};

inline Shape Capped(Shape shape, float cap) {
  shape.soft_cap = cap;
  return shape;
}

// The shape with K and V of the queries' type, and with 8-bit ones if there are heads of that size.
inline std::vector<Shape> WithKvTypes(const Shape& wide) {
  Shape narrow = wide;
  narrow.eight_bit_kv = true;
  if (wide.head_dim % 16 != 0) return {wide};
  return {wide, narrow};
}
template <typename Shapes>
std::vector<Shape> WithKvTypes(const Shapes& shapes) {
  std::vector<Shape> all;
  for (const Shape& shape : shapes) {
    for (const Shape& typed : WithKvTypes(shape)) all.push_back(typed);
  }
  return all;
}
inline std::vector<Shape> WithKvTypes(std::initializer_list<Shape> shapes) {
  return WithKvTypes(std::vector<Shape>(shapes));
}

struct Sequence {
  int32_t context, queries;
  uint64_t seed = 0;  // of its contents; 0: its index in the batch
};

inline Device TestDevice(bool dependent_launch = true) {
  static const Device device = [] {
    Device d;
    CUDA_CHECK(cudaStreamCreate(&d.stream));  // in order with the default stream's copies
    CUDA_CHECK(cudaDeviceGetAttribute(&d.num_sms, cudaDevAttrMultiProcessorCount, 0));
    return d;
  }();
  Device d = device;
  d.dependent_launch = dependent_launch;
  return d;
}

// The operation with its own space, which keeps only counters at zero between steps.
class Attention {
 public:
  explicit Attention(const Shape& shape, const Device& device = TestDevice(),
                     int64_t max_context = 40000)
      : limits_{.max_rows = 4097,
                .max_tokens = 20000,
                .max_context = max_context,
                .num_heads = shape.heads,
                .num_kv_heads = shape.kv_heads,
                .head_dim = shape.head_dim,
                .capped = shape.soft_cap > 0},
        space_(cuda::PagedAttention::SpaceBytes(limits_, device.num_sms)),
        op_(limits_, device, Zeroed(space_)) {}

  void Enqueue(const PagedAttentionParams& p) {
    op_.Plan(p);
    op_.Run(p);
  }
  cuda::PagedAttention& op() { return op_; }
  // Checks the canaries of the space.
  void CheckSpace() const { space_.Get(); }

 private:
  static void* Zeroed(const DeviceArray<char>& space) {
    CUDA_CHECK(cudaMemset(space.data(), 0, space.size()));
    return space.data();
  }

  const AttentionLimits limits_;
  const DeviceArray<char> space_;
  cuda::PagedAttention op_;
};

inline uint16_t Bits(DType dtype, float x) {
  if (dtype == DType::kE4M3) return FromFloat<E4M3>(x).bits;
  return dtype == DType::kBF16 ? FromFloat<BF16>(x).bits : FromFloat<F16>(x).bits;
}
inline double Value(DType dtype, uint16_t bits) {
  if (dtype == DType::kE4M3) return ToFloat(E4M3{static_cast<uint8_t>(bits)});
  return dtype == DType::kBF16 ? ToFloat(BF16{bits}) : ToFloat(F16{bits});
}

// Sequences over a pool, with blocks in random order and NaN in slots that no sequence owns.
class Batch {
 public:
  Batch(const Shape& shape, std::vector<Sequence> sequences, double q_scale = 2.0)
      : shape_(shape), sequences_(std::move(sequences)), scales_(shape.kv_dtype(), shape.kv_heads) {
    std::vector<int32_t> needs;
    query_begin_.push_back(0);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      if (sequences_[s].seed == 0) sequences_[s].seed = 1000 + s;
      needs.push_back(BlocksOf(sequences_[s].context));
      query_begin_.push_back(query_begin_.back() + sequences_[s].queries);
      context_len_.push_back(sequences_[s].context);
    }
    blocks_ = ShuffledBlocks(needs, *std::max_element(needs.begin(), needs.end()));
    FillPool();
    FillQueries(q_scale);
    Upload();
  }

  PagedAttentionParams Params(const DeviceArray<uint16_t>& out) const {
    const int32_t width = shape_.heads * shape_.head_dim;
    int32_t most = 1;
    for (const Sequence& s : sequences_) most = std::max(most, s.queries);
    const int64_t tokens = query_begin_.back();
    return {.q = TensorView(device_q_->data(), shape_.dtype, {tokens, QStride()})
                     .Columns(shape_.head_dim, width),
            .kv = View(),
            .num_heads = shape_.heads,
            .num_seqs = static_cast<int32_t>(sequences_.size()),
            .query_begin = device_begin_->data(),
            .context_len = device_context_->data(),
            .table_row = device_row_->data(),
            .block_table = device_table_->data(),
            .table_stride = blocks_.stride,
            .scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
            .soft_cap = shape_.soft_cap,
            .window = shape_.window,
            .max_query_len = most,
            .out = TensorView(out.data(), shape_.dtype, {tokens, width})};
  }
  // Queries [begin, begin + count) of sequence `s` alone.
  PagedAttentionParams Part(const DeviceArray<uint16_t>& out, int s, int32_t begin, int32_t count) {
    CUDA_CHECK(cudaDeviceSynchronize());  // the earlier part's arrays live until here
    PagedAttentionParams p = Params(out);
    const Sequence& sequence = sequences_[s];
    part_begin_ = std::make_unique<DeviceArray<int32_t>>(std::vector<int32_t>{0, count});
    part_context_ = std::make_unique<DeviceArray<int32_t>>(
        std::vector<int32_t>{sequence.context - sequence.queries + begin + count});
    p.q = p.q.Rows(query_begin_[s] + begin, count);
    p.out = p.out.Rows(query_begin_[s] + begin, count);
    p.num_seqs = 1;
    p.query_begin = part_begin_->data();
    p.context_len = part_context_->data();
    p.table_row += s;
    p.max_query_len = count;
    return p;
  }

  // The pool as older steps left it, without the K and V of this step's tokens.
  std::vector<uint16_t> PoolBefore() const {
    std::vector<uint16_t> pool = pool_;
    ForEachNewRow([&](int64_t, int64_t at, int) {
      std::fill_n(pool.begin() + at, shape_.head_dim, uint16_t{0xffff});
    });
    return pool;
  }
  // The step's qkv rows as a product writes them, and their slots.
  std::vector<uint16_t> QkvRows() const {
    const int64_t dim = shape_.head_dim, width = (shape_.heads + 2 * shape_.kv_heads) * dim;
    std::vector<uint16_t> rows(query_begin_.back() * width);
    for (int64_t t = 0; t < query_begin_.back(); ++t) {
      std::copy_n(&q_[t * QStride() + dim], shape_.heads * dim, &rows[t * width]);
    }
    ForEachNewRow([&](int64_t t, int64_t at, int head) {
      std::copy_n(&pool_[at], dim, &rows[t * width + (shape_.heads + head) * dim]);
    });
    return rows;
  }
  std::vector<int64_t> Slots() const {
    std::vector<int64_t> slots;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (int32_t i = 0; i < sequences_[s].queries; ++i) {
        const int32_t pos = sequences_[s].context - sequences_[s].queries + i;
        const int64_t block = blocks_.At(s, pos / shape_.block_size);
        slots.push_back(block * shape_.block_size + pos % shape_.block_size);
      }
    }
    return slots;
  }

  DeviceArray<uint16_t> MakeOut() const {
    return DeviceArray<uint16_t>(int64_t{query_begin_.back()} * shape_.heads * shape_.head_dim);
  }
  std::vector<uint16_t> Run(Attention& attention) const {
    const DeviceArray<uint16_t> out = MakeOut();
    attention.Enqueue(Params(out));
    return out.Get();
  }
  // The rows of sequence `s` in an output.
  std::vector<uint16_t> RowsOf(const std::vector<uint16_t>& out, int s) const {
    const int64_t width = int64_t{shape_.heads} * shape_.head_dim;
    return {out.begin() + query_begin_[s] * width, out.begin() + query_begin_[s + 1] * width};
  }

  void SetContexts(const std::vector<int32_t>& contexts) {
    context_len_ = contexts;
    device_context_->Set(contexts);
  }

  // Checks at most about `most` queries of each sequence, its first and its last among them.
  void Check(const std::vector<uint16_t>& out, int32_t most = INT32_MAX) const {
    struct Item {
      int sequence;
      int32_t query;
    };
    std::vector<Item> items;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const int32_t last = sequences_[s].queries - 1, step = last / most + 1;
      for (int32_t i = 0; i < last; i += step) items.push_back({static_cast<int>(s), i});
      if (last >= 0) items.push_back({static_cast<int>(s), last});
    }
    const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::string> wrong(threads);
    std::vector<std::thread> workers;
    for (unsigned w = 0; w < threads; ++w) {
      workers.emplace_back([&, w] {
        for (size_t i = w; i < items.size() && wrong[w].empty(); i += threads) {
          for (int32_t h = 0; h < shape_.heads && wrong[w].empty(); ++h) {
            wrong[w] = CheckRow(out, items[i].sequence, items[i].query, h);
          }
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    for (const std::string& what : wrong) EXPECT_EQ(what, "");
  }

 private:
  int64_t QStride() const { return (shape_.heads + 2 * shape_.kv_heads + 1) * shape_.head_dim; }
  int32_t BlocksOf(int32_t tokens) const {
    return (tokens + shape_.block_size - 1) / shape_.block_size;
  }
  int64_t HeadStride() const { return int64_t{shape_.block_size} * shape_.head_dim; }
  int64_t BlockStride() const { return 2 * HeadStride() * shape_.kv_heads + shape_.block_padding; }

  // The slot of a token of a sequence.
  int64_t At(int s, int32_t pos, int kind, int32_t kv_head) const {
    const int64_t block = blocks_.At(s, pos / shape_.block_size);
    return block * BlockStride() + (int64_t{kind} * shape_.kv_heads + kv_head) * HeadStride() +
           int64_t{pos % shape_.block_size} * shape_.head_dim;
  }

  // Calls `row` for every K and V row that the step writes, with its token in the step, its place
  // in the pool, and its number among the K and V heads.
  template <typename Row>
  void ForEachNewRow(const Row& row) const {
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (int32_t i = 0; i < sequences_[s].queries; ++i) {
        const int32_t pos = sequences_[s].context - sequences_[s].queries + i;
        for (int head = 0; head < 2 * shape_.kv_heads; ++head) {
          row(query_begin_[s] + i,
              At(static_cast<int>(s), pos, head / shape_.kv_heads, head % shape_.kv_heads), head);
        }
      }
    }
  }

  void FillPool() {
    const uint16_t nan = shape_.eight_bit_kv ? 0xff : 0xffff;
    pool_.assign(blocks_.count * BlockStride(), nan);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      Random random(sequences_[s].seed);
      for (int32_t pos = 0; pos < sequences_[s].context; ++pos) {
        for (int kind = 0; kind < 2; ++kind) {
          for (int32_t h = 0; h < shape_.kv_heads; ++h) {
            for (int32_t d = 0; d < shape_.head_dim; ++d) {
              const bool seen = shape_.window == 0 ||
                                pos > sequences_[s].context - sequences_[s].queries - shape_.window;
              const auto x = static_cast<float>(random.Uniform() * 4 - 2);
              const auto element = static_cast<float>(x / scales_.Of(kind, h));
              pool_[At(static_cast<int>(s), pos, kind, h) + d] =
                  seen ? Bits(shape_.kv_dtype(), element) : nan;
            }
          }
        }
      }
    }
  }

  void FillQueries(double q_scale) {
    q_.assign(query_begin_.back() * QStride(), 0xffff);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      Random random(sequences_[s].seed ^ 0x5555);
      for (int32_t i = 0; i < sequences_[s].queries; ++i) {
        uint16_t* row = q_.data() + (query_begin_[s] + i) * QStride() + shape_.head_dim;
        for (int32_t d = 0; d < shape_.heads * shape_.head_dim; ++d) {
          row[d] = Bits(shape_.dtype, static_cast<float>(random.Normal() * q_scale));
        }
      }
    }
  }

  void Upload() {
    using Ints = DeviceArray<int32_t>;
    device_pool_ = std::make_unique<DeviceArray<uint16_t>>(Packed());
    device_k_scales_ = std::make_unique<DeviceArray<float>>(scales_.k);
    device_v_scales_ = std::make_unique<DeviceArray<float>>(scales_.v);
    device_q_ = std::make_unique<DeviceArray<uint16_t>>(q_);
    device_begin_ = std::make_unique<Ints>(query_begin_);
    device_context_ = std::make_unique<Ints>(context_len_);
    device_row_ = std::make_unique<Ints>(blocks_.rows);
    device_table_ = std::make_unique<Ints>(blocks_.table);
  }

  // The pool as it lies in memory: of 8-bit elements two in a word.
  std::vector<uint16_t> Packed() const {
    if (!shape_.eight_bit_kv) return pool_;
    std::vector<uint16_t> packed(pool_.size() / 2);
    for (size_t i = 0; i < packed.size(); ++i) {
      packed[i] = static_cast<uint16_t>(pool_[2 * i] | pool_[2 * i + 1] << 8);
    }
    return packed;
  }
  double KvValue(int64_t at, int kind, int32_t kv_head) const {
    return Value(shape_.kv_dtype(), pool_[at]) * scales_.Of(kind, kv_head);
  }

  KvLayerView View() const {
    KvLayerView kv;
    kv.base = device_pool_->data();
    kv.dtype = shape_.kv_dtype();
    if (shape_.eight_bit_kv) {
      kv.k_scales = device_k_scales_->data();
      kv.v_scales = device_v_scales_->data();
    }
    kv.head_stride = HeadStride();
    kv.kv_stride = kv.head_stride * shape_.kv_heads;
    kv.block_stride = BlockStride();
    kv.block_size = shape_.block_size;
    kv.num_blocks = blocks_.count;
    kv.num_kv_heads = shape_.kv_heads;
    kv.head_dim = shape_.head_dim;
    return kv;
  }

  // Empty if the result is right. A weight and a result are each rounded to the type once, weights
  // of 8-bit values to f16; the rest is float arithmetic over the sum of |weight * value|. Weights
  // of f16 are multiples of 2^-24.
  std::string CheckRow(const std::vector<uint16_t>& out, int s, int32_t i, int32_t h) const {
    const int32_t dim = shape_.head_dim, kv_head = h / (shape_.heads / shape_.kv_heads);
    const int32_t position = context_len_[s] - sequences_[s].queries + i;
    const int32_t first = shape_.window > 0 ? std::max(0, position - shape_.window + 1) : 0;
    const int64_t t = query_begin_[s] + i;
    const uint16_t* q = q_.data() + t * QStride() + (h + 1) * dim;
    std::vector<double> query(dim), mean(dim, 0.0), size(dim, 0.0), score;
    for (int32_t d = 0; d < dim; ++d) query[d] = Value(shape_.dtype, q[d]);
    double top = -INFINITY, total = 0;
    for (int32_t pos = first; pos <= position; ++pos) {
      const int64_t k = At(s, pos, 0, kv_head);
      double dot = 0;
      for (int32_t d = 0; d < dim; ++d) dot += query[d] * KvValue(k + d, 0, kv_head);
      const double scaled = dot / std::sqrt(static_cast<double>(dim)), cap = shape_.soft_cap;
      score.push_back(cap > 0 ? cap * std::tanh(scaled / cap) : scaled);
      top = std::max(top, score.back());
    }
    for (int32_t pos = first; pos <= position; ++pos) {
      const double weight = std::exp(score[pos - first] - top);
      const int64_t v = At(s, pos, 1, kv_head);
      total += weight;
      for (int32_t d = 0; d < dim; ++d) {
        const double product = weight * KvValue(v + d, 1, kv_head);
        mean[d] += product;
        size[d] += std::abs(product);
      }
    }
    const double unit = StoreError(shape_.dtype);
    const DType of_weights = shape_.eight_bit_kv ? DType::kF16 : shape_.dtype;
    const double tiny =
        of_weights == DType::kF16 ? 2.0 * static_cast<double>(score.size()) * 0x1p-25 : 0.0;
    for (int32_t d = 0; d < dim; ++d) {
      const double want = mean[d] / total, spread = size[d] / total;
      const double bound =
          (StoreError(of_weights) + 2e-4) * spread + unit * std::abs(want) + tiny / total + 1e-7;
      const double got = Value(shape_.dtype, out[(t * shape_.heads + h) * dim + d]);
      if (std::abs(got - want) <= bound) continue;
      return "sequence " + std::to_string(s) + " context " + std::to_string(context_len_[s]) +
             " query " + std::to_string(i) + " head " + std::to_string(h) + " dim " +
             std::to_string(d) + ": " + std::to_string(got) + " is not " + std::to_string(want) +
             " within " + std::to_string(bound);
    }
    return "";
  }

  const Shape shape_;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> query_begin_, context_len_;
  ShuffledBlocks blocks_;
  const KvScales scales_;
  std::vector<uint16_t> pool_;  // a word for each element, also of 8 bits
  std::vector<uint16_t> q_;
  std::unique_ptr<DeviceArray<uint16_t>> device_pool_, device_q_;
  std::unique_ptr<DeviceArray<float>> device_k_scales_, device_v_scales_;
  std::unique_ptr<DeviceArray<int32_t>> device_begin_, device_context_, device_row_, device_table_;
  std::unique_ptr<DeviceArray<int32_t>> part_begin_, part_context_;
};

inline std::string NameOf(const Shape& s) {
  return std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " heads of " +
         std::to_string(s.head_dim) + " blocks of " + std::to_string(s.block_size) + " window " +
         std::to_string(s.window) + " cap " + std::to_string(s.soft_cap) + " " + Name(s.dtype) +
         " KV " + Name(s.kv_dtype());
}

}  // namespace quire::gpu

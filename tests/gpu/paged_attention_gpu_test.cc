// PagedAttention on the device against double arithmetic over a poisoned pool: every slot that no
// query sees is NaN, so a read of one fails the test. Bits must not depend on the batch, on the
// chunks of a prompt, on repetition, on graphs or on dependent launch.
//
// Covers kernels/cuda/attention/attention_plan.cu, kernels/cuda/attention/attention_decode.cu,
// kernels/cuda/attention/attention_prefill.cu
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>

#include "kernels/cuda/attention/paged_attention.h"
#include "kernels/cuda/device/cuda_kernels.h"
#include "tests/gpu/device_array.h"
#include "tests/kernels/cases.h"

namespace quire::gpu {
namespace {

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

Shape Capped(Shape shape, float cap) {
  shape.soft_cap = cap;
  return shape;
}

// The shape with K and V of the queries' type, and with 8-bit ones if there are heads of that size.
std::vector<Shape> WithKvTypes(const Shape& wide) {
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
std::vector<Shape> WithKvTypes(std::initializer_list<Shape> shapes) {
  return WithKvTypes(std::vector<Shape>(shapes));
}

struct Sequence {
  int32_t context, queries;
  uint64_t seed = 0;  // of its contents; 0: its index in the batch
};

Device TestDevice(bool dependent_launch = true) {
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

uint16_t Bits(DType dtype, float x) {
  if (dtype == DType::kE4M3) return FromFloat<E4M3>(x).bits;
  return dtype == DType::kBF16 ? FromFloat<BF16>(x).bits : FromFloat<F16>(x).bits;
}
double Value(DType dtype, uint16_t bits) {
  if (dtype == DType::kE4M3) return ToFloat(E4M3{static_cast<uint8_t>(bits)});
  return dtype == DType::kBF16 ? ToFloat(BF16{bits}) : ToFloat(F16{bits});
}

// Sequences over a pool, with blocks in random order and NaN in slots that no sequence owns.
class Batch {
 public:
  Batch(const Shape& shape, std::vector<Sequence> sequences, double q_scale = 2.0)
      : shape_(shape), sequences_(std::move(sequences)), scales_(shape.kv_dtype(), shape.kv_heads) {
    int32_t longest = 0, blocks = 1;
    query_begin_.push_back(0);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      if (sequences_[s].seed == 0) sequences_[s].seed = 1000 + s;
      longest = std::max(longest, sequences_[s].context);
      blocks += BlocksOf(sequences_[s].context);
      query_begin_.push_back(query_begin_.back() + sequences_[s].queries);
      context_len_.push_back(sequences_[s].context);
    }
    stride_ = BlocksOf(longest);
    FillTable(blocks);
    FillPool(blocks);
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
            .table_stride = stride_,
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
        const int64_t block = table_[table_row_[s] * stride_ + pos / shape_.block_size];
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

  void FillTable(int32_t blocks) {
    Random random(7);
    std::vector<int32_t> ids;
    for (int32_t b = 1; b < blocks; ++b) ids.push_back(b);
    for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random.Below(i)]);
    num_blocks_ = blocks;
    const size_t rows = sequences_.size();
    table_.assign(rows * stride_, 0);
    for (size_t s = 0; s < rows; ++s) {
      table_row_.push_back(static_cast<int32_t>(rows - 1 - s));
      for (int32_t b = 0; b < BlocksOf(sequences_[s].context); ++b) {
        table_[table_row_[s] * stride_ + b] = ids.back();
        ids.pop_back();
      }
    }
  }

  // The slot of a token of a sequence.
  int64_t At(int s, int32_t pos, int kind, int32_t kv_head) const {
    const int64_t block = table_[table_row_[s] * stride_ + pos / shape_.block_size];
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

  void FillPool(int32_t blocks) {
    const uint16_t nan = shape_.eight_bit_kv ? 0xff : 0xffff;
    pool_.assign(blocks * BlockStride(), nan);
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
    device_row_ = std::make_unique<Ints>(table_row_);
    device_table_ = std::make_unique<Ints>(table_);
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
    kv.num_blocks = num_blocks_;
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
  std::vector<int32_t> query_begin_, context_len_, table_row_, table_;
  int64_t stride_ = 0;
  int32_t num_blocks_ = 0;
  const KvScales scales_;
  std::vector<uint16_t> pool_;  // a word for each element, also of 8 bits
  std::vector<uint16_t> q_;
  std::unique_ptr<DeviceArray<uint16_t>> device_pool_, device_q_;
  std::unique_ptr<DeviceArray<float>> device_k_scales_, device_v_scales_;
  std::unique_ptr<DeviceArray<int32_t>> device_begin_, device_context_, device_row_, device_table_;
  std::unique_ptr<DeviceArray<int32_t>> part_begin_, part_context_;
};

std::string NameOf(const Shape& s) {
  return std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " heads of " +
         std::to_string(s.head_dim) + " blocks of " + std::to_string(s.block_size) + " window " +
         std::to_string(s.window) + " cap " + std::to_string(s.soft_cap) + " " + Name(s.dtype) +
         " KV " + Name(s.kv_dtype());
}

// Contexts on both sides of every border of a tile, a block, a chunk.
std::vector<Sequence> Borders() {
  std::vector<Sequence> all;
  for (int32_t n :
       {1,   2,   15,  16,  17,  31,  33,  47,  48,  63,  64,   65,   79,   80,   81,  127,
        128, 129, 191, 192, 193, 255, 256, 257, 511, 513, 1023, 1024, 1025, 2047, 2049}) {
    all.push_back({n, 1});
  }
  return all;
}

const std::vector<Shape> kShapes = {
    {4, 1, 128, 64},
    {8, 2, 128, 16},
    {8, 8, 128, 32},
    {6, 2, 64, 16},
    {16, 1, 128, 64, 0, DType::kF16},
    {10, 2, 64, 64, 0, DType::kF16},
    {7, 1, 128, 32, 100},
    {4, 2, 64, 32, 33},
    {16, 8, 64, 64},
    // Heads of other sizes than the compiled ones, and groups larger than kDecodeRows.
    {4, 1, 8, 16},
    {6, 2, 32, 64, 40},
    {8, 2, 72, 32},
    {8, 8, 80, 64},
    {8, 2, 96, 16, 0, DType::kF16},
    {7, 1, 112, 64},
    {8, 2, 160, 32, 70},
    {4, 2, 192, 64},
    {8, 1, 256, 64},
    {16, 1, 256, 16, 0, DType::kF16},
    {4, 4, 256, 32, 100},
    Capped({8, 4, 256, 64, 90}, 5),
    Capped({16, 1, 256, 16}, 50),
    Capped({8, 2, 128, 32}, 3),
    Capped({6, 2, 64, 64, 0, DType::kF16}, 10),
    Capped({4, 1, 96, 64}, 2),
    {24, 1, 128, 64},
    {48, 2, 64, 16, 33},
    {71, 1, 64, 64},
    {130, 1, 16, 32},
};

TEST(PagedAttentionGpuTest, DecodesContextsOfEveryLength) {
  for (const Shape& shape : WithKvTypes(kShapes)) {
    SCOPED_TRACE(NameOf(shape));
    Attention attention(shape);
    const Batch batch(shape, Borders());
    batch.Check(batch.Run(attention));
    attention.CheckSpace();
  }
}

TEST(PagedAttentionGpuTest, DecodesOneLongContext) {
  for (const Shape& shape :
       WithKvTypes({Shape{8, 2, 128, 64}, Shape{16, 1, 64, 16}, Shape{4, 4, 128, 32},
                    Shape{8, 2, 256, 64}, Shape{8, 2, 80, 16}})) {
    for (int32_t context : {4097, 16390, 33000}) {
      SCOPED_TRACE(NameOf(shape) + " context " + std::to_string(context));
      Attention attention(shape);
      const Batch batch(shape, {{context, 1}});
      batch.Check(batch.Run(attention));
      attention.CheckSpace();
    }
  }
}

TEST(PagedAttentionGpuTest, ServesDecodeAndPrefillInOneStep) {
  for (const Shape& shape : WithKvTypes(kShapes)) {
    SCOPED_TRACE(NameOf(shape));
    Attention attention(shape);
    const Batch batch(shape, {{1, 1},
                              {16, 16},
                              {17, 1},
                              {33, 20},
                              {65, 65},
                              {5, 0},
                              {200, 37},
                              {513, 2},
                              {1100, 1},
                              {700, 150},
                              {1030, 3},
                              {129, 129},
                              {300, 130},
                              {64, 5},
                              {90, 8},
                              {257, 16},
                              {1500, 33},
                              {2, 2}});
    batch.Check(batch.Run(attention));
    attention.CheckSpace();
  }
}

TEST(PagedAttentionGpuTest, PrefillsOneLongPrompt) {
  for (const Shape& shape : WithKvTypes(
           {Shape{4, 1, 128, 64}, Shape{5, 1, 64, 16}, Shape{4, 2, 128, 32, 700},
            Capped({4, 2, 256, 64, 700}, 50), Shape{5, 1, 192, 16}, Shape{4, 1, 112, 32}})) {
    SCOPED_TRACE(NameOf(shape));
    const Batch batch(shape, {{1400, 1400}});
    Attention attention(shape);
    batch.Check(batch.Run(attention));
  }
}

// Guessed tokens of several sequences among decoding ones: contexts that are cut into spans, and
// those on both sides of the shortest.
TEST(PagedAttentionGpuTest, VerifiesGuessesOverLongContexts) {
  for (const Shape& shape :
       WithKvTypes({Shape{8, 2, 128, 64}, Shape{16, 8, 64, 16}, Shape{7, 1, 128, 32, 3000},
                    Capped({8, 4, 256, 64, 4000}, 50), Shape{24, 1, 80, 16},
                    Shape{6, 2, 64, 16, 0, DType::kF16}, Shape{4, 4, 192, 32}})) {
    SCOPED_TRACE(NameOf(shape));
    Attention attention(shape);
    const Batch batch(shape, {{1022, 17},
                              {1040, 17},
                              {3000, 1},
                              {1100, 9},
                              {2060, 5},
                              {4097, 12},
                              {700, 2},
                              {9000, 17},
                              {16390, 3},
                              {1, 1}});
    const std::vector<uint16_t> out = batch.Run(attention);
    batch.Check(out, 3);
    EXPECT_EQ(batch.Run(attention), out);
    attention.CheckSpace();
  }
}

TEST(PagedAttentionGpuTest, CutsChunksOfPromptsOverLongContexts) {
  for (const Shape& shape : WithKvTypes({Shape{8, 2, 128, 64}, Shape{4, 1, 64, 32},
                                         Shape{8, 2, 128, 16, 5000}, Shape{4, 2, 256, 64}})) {
    for (const std::vector<Sequence>& sequences : {std::vector<Sequence>{{8192, 64}},
                                                   {{8200, 1024}, {2500, 1}},
                                                   {{8192, 256}, {32768, 17}},
                                                   {{32760, 64}, {12000, 1}, {8200, 130}}}) {
      SCOPED_TRACE(NameOf(shape) + " of " + std::to_string(sequences[0].queries));
      Attention attention(shape);
      const Batch batch(shape, sequences);
      const std::vector<uint16_t> out = batch.Run(attention);
      batch.Check(out, 4);
      EXPECT_EQ(batch.Run(attention), out);
      attention.CheckSpace();
    }
  }
}

// More states than there is memory for: tiles of the later sequences take their spans one after
// another.
TEST(PagedAttentionGpuTest, RoomForStatesDoesNotChangeBits) {
  std::vector<Shape> shapes = WithKvTypes(Shape{8, 1, 128, 64});
  shapes.insert(shapes.end(), {Shape{8, 1, 64, 64}, Shape{8, 1, 256, 64}});
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(NameOf(shape));
    std::vector<std::vector<uint16_t>> alone;
    std::vector<Sequence> all;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      all.push_back({static_cast<int32_t>(1900 + 30 * seed), 16, seed});
      Attention attention(shape, TestDevice(), 2048);
      const Batch batch(shape, {all.back()});
      alone.push_back(batch.Run(attention));
      batch.Check(alone.back(), 4);
    }
    while (all.size() < 220) all.push_back(all[all.size() - 4]);
    Attention attention(shape, TestDevice(), 2048);
    const Batch batch(shape, all);
    const std::vector<uint16_t> out = batch.Run(attention);
    for (int s = 0; s < 220; ++s) ASSERT_EQ(batch.RowsOf(out, s), alone[s % 4]) << s;
    EXPECT_EQ(batch.Run(attention), out);
    attention.CheckSpace();
  }
}

// Ranges that keep as many partial states as the longest contexts allow.
TEST(PagedAttentionGpuTest, KeepsPartialStatesWithinTheirSpace) {
  for (const Shape& shape : {Shape{8, 1, 64, 64}, Capped({8, 1, 64, 64}, 20), Shape{8, 1, 128, 64},
                             Shape{8, 1, 256, 64}}) {
    SCOPED_TRACE(NameOf(shape));
    const Batch batch(shape, std::vector<Sequence>(190, {512, 1}));
    Attention attention(shape, TestDevice(), 512);
    batch.Check(batch.Run(attention));
    attention.CheckSpace();
  }
}

TEST(PagedAttentionGpuTest, HandlesScoresBeyondTheExponentRange) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (float cap : {0.0f, 30.0f}) {
      const Shape shape = Capped({4, 1, 128, 16, 0, dtype}, cap);
      Attention attention(shape);
      const Batch batch(shape, {{600, 1}, {90, 90}}, 100.0);
      batch.Check(batch.Run(attention));
    }
  }
}

// Rows of zeros, and of sizes that f16 does not hold: those of 8-bit K are scaled first. Their
// scores are far below 1 or far above the exponent's range.
TEST(PagedAttentionGpuTest, TakesQueriesOfEverySize) {
  for (const double q_scale : {0.0, 1e-30, 1e-12, 1e3, 1e6}) {
    for (const Shape& shape : WithKvTypes({Shape{4, 1, 128, 64}, Shape{4, 2, 64, 16},
                                           Shape{12, 1, 256, 32}, Shape{4, 2, 128, 16, 20}})) {
      SCOPED_TRACE(NameOf(shape) + " queries of " + std::to_string(q_scale));
      Attention attention(shape);
      // The most queries of the step decide the form of decode attention.
      for (const Batch& batch : {Batch(shape, {{300, 1}, {5, 1}, {90, 90}}, q_scale),
                                 Batch(shape, {{1400, 1}, {5, 1}}, q_scale)}) {
        batch.Check(batch.Run(attention));
      }
    }
  }
}

// A pool of more than 2^31 elements.
TEST(PagedAttentionGpuTest, ReachesBlocksFarApart) {
  const Shape shape{4, 1, 128, 64, 0, DType::kBF16, 40 << 20};
  Attention attention(shape);
  const Batch batch(shape, {{1500, 1}, {2000, 1}, {130, 130}});
  batch.Check(batch.Run(attention));
}

TEST(PagedAttentionGpuTest, BitsDoNotDependOnTheBatch) {
  for (const Shape& shape :
       WithKvTypes({Shape{8, 2, 128, 64}, Shape{4, 4, 64, 16}, Shape{16, 1, 128, 32},
                    Capped({8, 4, 256, 64}, 50), Shape{24, 1, 80, 16}})) {
    SCOPED_TRACE(NameOf(shape));
    Attention attention(shape);
    const std::vector<Sequence> chosen = {{1, 1, 1},    {700, 1, 2},  {5000, 1, 3},  {64, 1, 4},
                                          {300, 40, 5}, {1025, 1, 6}, {3000, 17, 7}, {2500, 64, 8}};
    for (const Sequence& sequence : chosen) {
      const std::vector<uint16_t> alone = Batch(shape, {sequence}).Run(attention);
      Random random(sequence.seed);
      for (int mates : {1, 6, 63, 255}) {
        std::vector<Sequence> all;
        for (int i = 0; i < mates; ++i) {
          const auto context = static_cast<int32_t>(1 + random.Below(mates > 100 ? 300 : 900));
          const bool prefill = random.Below(8) == 0;
          all.push_back({context, prefill ? std::min(context, 50) : 1, 100 + random.Next() % 1000});
        }
        const int place = static_cast<int>(random.Below(mates + 1));
        all.insert(all.begin() + place, sequence);
        const Batch batch(shape, all);
        EXPECT_EQ(batch.RowsOf(batch.Run(attention), place), alone)
            << "context " << sequence.context << " among " << mates;
      }
    }
  }
}

TEST(PagedAttentionGpuTest, PrefillChunksDoNotChangeBits) {
  for (const Shape& shape : WithKvTypes({Shape{8, 2, 128, 64}, Shape{6, 2, 64, 16, 90},
                                         Shape{3, 1, 128, 32}, Capped({6, 2, 256, 16, 90}, 50)})) {
    SCOPED_TRACE(NameOf(shape));
    Attention attention(shape);
    Batch batch(shape, {{40, 9}, {900, 900}});
    const DeviceArray<uint16_t> whole = batch.MakeOut(), parts = batch.MakeOut();
    attention.Enqueue(batch.Params(whole));
    attention.Enqueue(batch.Part(parts, 0, 0, 9));
    for (int32_t begin = 0, count = 17; begin < 900; begin += count) {
      count = std::min(17 + count * 5 % 143, 900 - begin);
      if (900 - begin - count < 17)
        count = 900 - begin;  // fewer than 17 would go to the decode kernel
      attention.Enqueue(batch.Part(parts, 1, begin, count));
    }
    EXPECT_EQ(parts.Get(), whole.Get());
  }
}

TEST(PagedAttentionGpuTest, RepeatsTheSameBits) {
  for (const Shape& shape : WithKvTypes({Shape{8, 2, 128, 64}, Shape{8, 8, 64, 32},
                                         Shape{8, 4, 256, 64}, Shape{8, 4, 96, 64}})) {
    const Batch batch(
        shape,
        {{3000, 1}, {100, 1}, {700, 200}, {9000, 1}, {65, 1}, {20, 3}, {9000, 12}, {6000, 100}});
    Attention attention(shape), plain(shape, TestDevice(false));
    const std::vector<uint16_t> first = batch.Run(attention);
    DeviceArray<uint16_t> out = batch.MakeOut();
    for (int i = 0; i < 20; ++i) {
      out.Poison();
      (i % 2 == 0 ? attention : plain).Enqueue(batch.Params(out));
      ASSERT_EQ(out.Get(), first) << i;
    }
  }
}

// As many rows as a server may have, of two kinds of layers: both plans hold for the whole step.
TEST(PagedAttentionGpuTest, AlternatesWindowsOverTheMostRows) {
  const Shape shape{2, 1, 64, 16}, windowed{2, 1, 64, 16, 33};
  std::vector<Sequence> sequences;
  for (int i = 0; i < 4096; ++i) sequences.push_back({1 + i % 97, 1, 1000u + i % 50});
  const Batch batch(shape, sequences), in_window(windowed, sequences);
  Attention attention(shape);
  const DeviceArray<uint16_t> out = batch.MakeOut(), seen = in_window.MakeOut();
  attention.op().Plan(batch.Params(out));
  attention.op().Plan(in_window.Params(seen));
  for (int layer = 0; layer < 3; ++layer) {
    attention.op().Run(batch.Params(out));
    attention.op().Run(in_window.Params(seen));
  }
  batch.Check(out.Get());
  in_window.Check(seen.Get());
  attention.CheckSpace();
}

// Replays a captured step while the contexts grow: the graph must have no length in it, and every
// counter must return to zero. Layers run without a pause between them.
TEST(PagedAttentionGpuTest, ReplaysAGraphOverGrowingContexts) {
  const Shape shape{8, 2, 128, 64};
  std::vector<Sequence> longest;
  for (int i = 0; i < 24; ++i) longest.push_back({i % 5 == 0 ? 6000 : 60 + 37 * i, 1});
  for (int i = 0; i < 8; ++i) longest.push_back({1, 1});  // padding
  Batch batch(shape, longest);
  Attention attention(shape), eager(shape);
  const DeviceArray<uint16_t> out = batch.MakeOut(), other = batch.MakeOut();

  const cudaStream_t stream = TestDevice().stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const PagedAttentionParams p = batch.Params(out), q = batch.Params(other);
  attention.Enqueue(q);
  for (int layer = 0; layer < 6; ++layer) attention.Enqueue(layer % 2 == 0 ? p : q);
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));

  for (int32_t shrink : {50, 20, 7, 1, 0}) {
    std::vector<int32_t> contexts;
    for (const Sequence& s : longest) {
      contexts.push_back(std::max(1, s.context - shrink * s.context / 60));
    }
    batch.SetContexts(contexts);
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    CUDA_CHECK(cudaDeviceSynchronize());
    const std::vector<uint16_t> replayed = out.Get();
    EXPECT_EQ(other.Get(), replayed);
    EXPECT_EQ(batch.Run(eager), replayed) << shrink;
    batch.Check(replayed);
  }
  CUDA_CHECK(cudaGraphExecDestroy(exec));
  CUDA_CHECK(cudaGraphDestroy(graph));
}

// A step of layers, each of which writes its tokens' K and V just before it reads them. A kernel
// must not read those early; it may read older steps' K and V early.
class LayeredStep {
 public:
  static constexpr int kLayers = 5;

  LayeredStep(const Shape& shape, const Batch& batch)
      : shape_(shape),
        batch_(batch),
        pool_before_(batch.PoolBefore()),
        qkv_(batch.QkvRows()),
        slots_(batch.Slots()),
        positions_(std::vector<int32_t>(static_cast<size_t>(slots_.size()), 0)),
        turn_(NoTurn(shape.head_dim)) {
    for (int layer = 0; layer < kLayers; ++layer) {
      pools_.emplace_back(pool_before_.size());
      out_.push_back(batch.MakeOut());
    }
  }

  void Enqueue(cuda::PagedAttention& attention, const Device& device) {
    const int64_t width = int64_t{shape_.heads} * shape_.head_dim;
    const TensorView qkv(qkv_.data(), shape_.dtype, {slots_.size(), qkv_.size() / slots_.size()});
    for (int layer = 0; layer < kLayers; ++layer) {
      PagedAttentionParams p = batch_.Params(out_[layer]);
      p.kv.base = pools_[layer].data();
      p.q = qkv.Columns(0, width);
      cuda::RopeStoreKv({.qkv = qkv,
                         .num_heads = shape_.heads,
                         .positions = positions_.data(),
                         .slots = slots_.data(),
                         .cos_sin = TensorView(turn_.data(), DType::kF32, {1, shape_.head_dim}),
                         .kv = p.kv},
                        device, layer > 0);
      if (layer == 0) attention.Plan(p);
      attention.Run(p);
    }
  }
  void ForgetTheStep() {
    for (DeviceArray<uint16_t>& pool : pools_) {
      CUDA_CHECK(
          cudaMemcpy(pool.data(), pool_before_.data(), pool.size() * 2, cudaMemcpyDeviceToDevice));
    }
    for (DeviceArray<uint16_t>& out : out_) out.Poison();
    CUDA_CHECK(cudaDeviceSynchronize());
  }
  std::vector<uint16_t> Out(int layer) const { return out_[layer].Get(); }

 private:
  // Cosines of one and sines of zero: the stored K equals the rows.
  static std::vector<float> NoTurn(int32_t dim) {
    std::vector<float> turn(static_cast<size_t>(dim), 0.0f);
    std::fill_n(turn.begin(), dim / 2, 1.0f);
    return turn;
  }

  const Shape shape_;
  const Batch& batch_;
  const DeviceArray<uint16_t> pool_before_, qkv_;
  const DeviceArray<int64_t> slots_;
  const DeviceArray<int32_t> positions_;
  const DeviceArray<float> turn_;
  std::vector<DeviceArray<uint16_t>> pools_, out_;
};

TEST(PagedAttentionGpuTest, ReadsNewTokensOnlyAfterTheyAreWritten) {
  const std::vector<Sequence> one = {{1024, 1}};
  const std::vector<Sequence> few = {{1, 1},   {16, 1},   {17, 1},   {65, 2},
                                     {300, 1}, {1024, 1}, {1026, 2}, {5000, 1}};
  const std::vector<Sequence> mixed = {{700, 1}, {300, 100}, {40, 40}, {2048, 1}, {3000, 20}};
  for (const Shape& shape :
       {Shape{8, 2, 128, 64}, Shape{8, 8, 64, 16}, Shape{4, 1, 64, 32, 90}, Shape{8, 2, 256, 64}}) {
    for (const auto& sequences : {one, few, mixed}) {
      SCOPED_TRACE(NameOf(shape) + " of " + std::to_string(sequences.size()));
      const Batch batch(shape, sequences);
      Attention attention(shape);
      LayeredStep step(shape, batch);
      cudaGraph_t graph;
      cudaGraphExec_t exec;
      const cudaStream_t stream = TestDevice().stream;
      CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      step.Enqueue(attention.op(), TestDevice());
      CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
      CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
      const std::vector<uint16_t> expected = batch.Run(attention);
      batch.Check(expected);
      for (int i = 0; i < 20; ++i) {
        step.ForgetTheStep();
        CUDA_CHECK(cudaGraphLaunch(exec, stream));
        for (int layer = 0; layer < LayeredStep::kLayers; ++layer) {
          ASSERT_EQ(step.Out(layer), expected) << i << " layer " << layer;
        }
      }
      CUDA_CHECK(cudaGraphExecDestroy(exec));
      CUDA_CHECK(cudaGraphDestroy(graph));
    }
  }
}

}  // namespace
}  // namespace quire::gpu

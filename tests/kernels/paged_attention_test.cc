// PagedAttention against double arithmetic over a poisoned pool: every slot that a query does not
// see is NaN, so a read of one fails the test. Chunks, the batch, threads and block sizes must not
// change a bit.
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_kernels.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/shuffled_blocks.h"

namespace quire {
namespace {

struct Shape {
  int32_t heads, kv_heads, head_dim, block_size, window;
  float soft_cap = 0;
};

struct Sequence {
  int32_t context, queries;
};

// Sequences over a shared pool, with blocks in random order and NaN in slots that no sequence owns.
class AttentionCase {
 public:
  AttentionCase(const Shape& shape, DType cache, std::vector<Sequence> sequences,
                double q_scale = 2.0)
      : shape_(shape),
        cache_(cache),
        scales_(cache, shape.kv_heads),
        sequences_(std::move(sequences)) {
    std::vector<int32_t> needs;
    query_begin_.push_back(0);
    for (const Sequence& s : sequences_) {
      needs.push_back(BlocksOf(s.context));
      query_begin_.push_back(query_begin_.back() + s.queries);
      context_len_.push_back(s.context);
    }
    blocks_ = ShuffledBlocks(needs, *std::max_element(needs.begin(), needs.end()) + 1);
    FillPool();
    Random random(99);
    q_ = Array::Normal(random, DType::kF32,
                       {query_begin_.back(), (shape.heads + 5) * int64_t{shape.head_dim}}, q_scale);
  }

  // Runs all sequences.
  void Attend(Backend& backend, Array& out) { backend.PagedAttention(Params(out)); }
  void Attend(const cpu::Cores& cores, cpu::AttentionSpace& space, Array& out) {
    cpu::PagedAttention(Params(out), cores, space);
  }

  // Runs sequence `s` alone for its queries [begin, begin + count).
  void Attend(Backend& backend, Array& out, int s, int32_t begin, int32_t count) {
    PagedAttentionParams p = Params(out);
    const int32_t one_begin[] = {0, count};
    const int32_t one_context = sequences_[s].context - sequences_[s].queries + begin + count;
    p.q = p.q.Rows(query_begin_[s] + begin, count);
    p.out = p.out.Rows(query_begin_[s] + begin, count);
    p.num_seqs = 1;
    p.query_begin = one_begin;
    p.context_len = &one_context;
    p.table_row += s;
    backend.PagedAttention(p);
  }

  Array MakeOut() const {
    Array out(DType::kF32, {query_begin_.back(), int64_t{shape_.heads} * shape_.head_dim});
    out.Fill(NAN);
    return out;
  }

  // Poisons the slots of positions [from, ...) of sequence `s`.
  void PoisonFrom(int s, int32_t from) {
    for (int32_t pos = from; pos < sequences_[s].context; ++pos)
      FillToken(s, pos, [] { return NAN; });
  }
  void PoisonBefore(int s, int32_t to) {
    for (int32_t pos = 0; pos < to; ++pos) FillToken(s, pos, [] { return NAN; });
  }

  void Check(const Array& out) const {
    const std::vector<double> pool = Doubles(pool_), q = Doubles(q_);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (int32_t i = 0; i < sequences_[s].queries; ++i) {
        for (int32_t h = 0; h < shape_.heads; ++h) {
          CheckOne(out, pool.data(), q.data(), {static_cast<int>(s), i, h});
        }
      }
    }
  }

 private:
  PagedAttentionParams Params(Array& out) {
    const int32_t width = shape_.heads * shape_.head_dim;
    return {.q = q_.view().Columns(shape_.head_dim, width),
            .kv = View(),
            .num_heads = shape_.heads,
            .num_seqs = static_cast<int32_t>(sequences_.size()),
            .query_begin = query_begin_.data(),
            .context_len = context_len_.data(),
            .table_row = blocks_.rows.data(),
            .block_table = blocks_.table.data(),
            .table_stride = blocks_.stride,
            .scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
            .soft_cap = shape_.soft_cap,
            .window = shape_.window,
            .max_query_len = query_begin_.back(),
            .out = out.view()};
  }

  int32_t BlocksOf(int32_t tokens) const {
    return (tokens + shape_.block_size - 1) / shape_.block_size;
  }

  void FillPool() {
    pool_ = Array(cache_, {blocks_.count, 2, shape_.kv_heads, shape_.block_size, shape_.head_dim});
    pool_.Fill(NAN);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      Random random(1000 + s);
      for (int32_t pos = 0; pos < sequences_[s].context; ++pos) {
        FillToken(static_cast<int>(s), pos, [&] { return static_cast<float>(random.Normal()); });
      }
    }
  }

  int64_t At(int s, int32_t pos, int kind, int32_t kv_head) const {
    const int64_t block = blocks_.At(s, pos / shape_.block_size);
    const int64_t row = (block * 2 + kind) * shape_.kv_heads + kv_head;
    return (row * shape_.block_size + pos % shape_.block_size) * shape_.head_dim;
  }

  template <typename Fn>
  void FillToken(int s, int32_t pos, Fn value) {
    for (int kind = 0; kind < 2; ++kind) {
      for (int32_t h = 0; h < shape_.kv_heads; ++h) {
        for (int32_t i = 0; i < shape_.head_dim; ++i) pool_.Set(At(s, pos, kind, h) + i, value());
      }
    }
  }

  KvLayerView View() {
    KvLayerView kv;
    kv.base = pool_.data();
    kv.dtype = cache_;
    kv.head_stride = int64_t{shape_.block_size} * shape_.head_dim;
    kv.kv_stride = kv.head_stride * shape_.kv_heads;
    kv.block_stride = kv.kv_stride * 2;
    kv.block_size = shape_.block_size;
    kv.num_blocks = static_cast<int32_t>(pool_.view().dim[0]);
    kv.num_kv_heads = shape_.kv_heads;
    kv.head_dim = shape_.head_dim;
    scales_.Set(kv);
    return kv;
  }

  static std::vector<double> Doubles(const Array& array) {
    std::vector<double> doubles(array.size());
    for (int64_t i = 0; i < array.size(); ++i) doubles[i] = array[i];
    return doubles;
  }

  struct Which {
    int sequence;
    int32_t query, head;
  };

  void CheckOne(const Array& out, const double* pool, const double* all_q, Which which) const {
    const auto [s, i, h] = which;
    const int32_t dim = shape_.head_dim;
    const int32_t position = sequences_[s].context - sequences_[s].queries + i;
    const int32_t first = shape_.window > 0 ? std::max(0, position - shape_.window + 1) : 0;
    const int32_t kv_head = h / (shape_.heads / shape_.kv_heads);
    const int64_t t = query_begin_[s] + i;
    const double* q = all_q + t * (shape_.heads + 5) * dim + (h + 1) * dim;
    std::vector<double> score, mean(dim, 0.0);
    double top = -INFINITY, total = 0, score_size = 0, value_size = 0;
    for (int32_t pos = first; pos <= position; ++pos) {
      const double* k = pool + At(s, pos, 0, kv_head);
      double dot = 0, size = 0;
      for (int32_t d = 0; d < dim; ++d) {
        const double product = q[d] * k[d] * scales_.Of(0, kv_head);
        dot += product;
        size += std::abs(product);
      }
      const double scaled = dot / std::sqrt(static_cast<double>(dim)), cap = shape_.soft_cap;
      score.push_back(cap > 0 ? cap * std::tanh(scaled / cap) : scaled);
      score_size = std::max(score_size, size / std::sqrt(static_cast<double>(dim)));
      top = std::max(top, score.back());
    }
    for (int32_t pos = first; pos <= position; ++pos) {
      const double weight = std::exp(score[pos - first] - top);
      const double* v = pool + At(s, pos, 1, kv_head);
      total += weight;
      for (int32_t d = 0; d < dim; ++d) {
        const double value = v[d] * scales_.Of(1, kv_head);
        mean[d] += weight * value;
        value_size = std::max(value_size, std::abs(value));
      }
    }
    // An error e in a score is a relative error e of its weight; sums add one rounding a key.
    const double n = static_cast<double>(score.size());
    const double score_roundings = shape_.soft_cap > 0 ? 13 : 5;
    const double bound =
        value_size * 2 *
        ((SumError(dim) + score_roundings * kRounding) * score_size + (n + 16) * kRounding);
    for (int32_t d = 0; d < dim; ++d) {
      ASSERT_NEAR(out[(t * shape_.heads + h) * dim + d], mean[d] / total, bound)
          << "sequence " << s << " query " << i << " head " << h << " dim " << d;
    }
  }

  const Shape shape_;
  const DType cache_;
  const KvScales scales_;
  const std::vector<Sequence> sequences_;
  std::vector<int32_t> query_begin_, context_len_;
  ShuffledBlocks blocks_;
  Array pool_, q_;
};

const std::vector<Sequence> kRagged = {{1, 1}, {16, 16},  {17, 1},  {33, 20},  {65, 65},
                                       {5, 0}, {200, 37}, {513, 2}, {1100, 1}, {700, 150}};

TEST(PagedAttentionTest, MatchesDoubleArithmeticAndIsTheSameOnEveryMachine) {
  for (const Shape& shape : {Shape{4, 2, 64, 16, 0},
                             {6, 2, 32, 64, 0},
                             {3, 1, 20, 16, 40},
                             {2, 2, 128, 32, 300},
                             {5, 1, 80, 16, 0},
                             {4, 2, 96, 16, 40, 3.0f},
                             {8, 2, 64, 16, 0, 1.5f}}) {
    for (DType cache : kKvTypes) {
      AttentionCase c(shape, cache, kRagged);
      Array first;
      OnEveryMachine([&](Backend& backend, const Machine& machine) {
        SCOPED_TRACE(machine.name() + " dim " + std::to_string(shape.head_dim) + " " + Name(cache));
        Array out = c.MakeOut();
        c.Attend(backend, out);
        if (first.size() == 0) {
          first = out.Copy();
          c.Check(out);
        }
        ASSERT_TRUE(out.SameBits(first));
      });
    }
  }
}

TEST(PagedAttentionTest, PrefillChunksDoNotChangeBits) {
  for (int32_t window : {0, 90}) {
    AttentionCase c({4, 1, 32, 16, window}, DType::kBF16, {{40, 9}, {700, 700}});
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name());
      Array whole = c.MakeOut(), parts = c.MakeOut();
      c.Attend(backend, whole);
      c.Attend(backend, parts, 0, 0, 9);
      for (int32_t begin = 0, count = 1; begin < 700;
           begin += count, count = (count * 5 + 2) % 143) {
        count = std::min(count, 700 - begin);
        c.Attend(backend, parts, 1, begin, count);
      }
      EXPECT_TRUE(parts.SameBits(whole));
    });
  }
}

// Items of 8 rows of 32 floats and 24 and 18 spans, and one of 32 rows and 1 span.
TEST(PagedAttentionTest, SizeOfTheSplitSpaceDoesNotChangeBits) {
  AttentionCase c({8, 1, 16, 16, 0}, DType::kF32, {{12000, 1}, {9000, 1}, {100, 4}});
  cpu::ThreadPool alone(1, false), three(3, false);
  const cpu::VectorKernels& kernels = cpu::KernelsFor(cpu::BestIsa());
  cpu::AttentionSpace none(0);
  Array whole = c.MakeOut();
  c.Attend({alone, kernels}, none, whole);
  c.Check(whole);
  // In rows: none, too few to split, the fewest, odd ones that break items anywhere, and plenty.
  for (int64_t rows : {0, 128, 160, 161, 170, 200, 240, 300, 399, 10000}) {
    cpu::AttentionSpace space(rows * 32);
    Array out = c.MakeOut();
    c.Attend({three, kernels}, space, out);
    EXPECT_TRUE(out.SameBits(whole)) << rows;
  }
}

TEST(PagedAttentionTest, BlockSizeDoesNotChangeBits) {
  Array first;
  for (int32_t block_size : {16, 32, 64}) {
    AttentionCase c({4, 2, 64, block_size, 0}, DType::kF32, {{600, 40}});
    Array out = c.MakeOut();
    c.Attend(*MakeBackend({cpu::BestIsa(), 2}), out);
    if (first.size() == 0) first = out.Copy();
    EXPECT_TRUE(out.SameBits(first)) << block_size;
  }
}

TEST(PagedAttentionTest, NeverReadsInvisibleKeys) {
  for (DType cache : kKvTypes) {
    AttentionCase c({4, 2, 64, 16, 50}, cache, {{700, 700}});
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name());
      Array clean = c.MakeOut(), out = c.MakeOut();
      // Queries [100, 120) see keys [51, 120); every other key may be NaN.
      AttentionCase narrow({4, 2, 64, 16, 50}, cache, {{700, 700}});
      narrow.PoisonFrom(0, 120);
      narrow.PoisonBefore(0, 51);
      c.Attend(backend, clean, 0, 100, 20);
      narrow.Attend(backend, out, 0, 100, 20);
      EXPECT_TRUE(out.SameBits(clean));
    });
  }
}

TEST(PagedAttentionTest, HandlesScoresBeyondTheExponentRange) {
  AttentionCase c({1, 1, 16, 16, 0}, DType::kF32, {{40, 40}}, 500.0);
  OnEveryMachine([&](Backend& backend, const Machine& machine) {
    SCOPED_TRACE(machine.name());
    Array out = c.MakeOut();
    c.Attend(backend, out);
    c.Check(out);
  });
}

}  // namespace
}  // namespace quire

// RopeStoreKv against double arithmetic: rotation, head norms, the places of K and V in the pool,
// and their 8-bit elements.
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

struct Shape {
  int32_t heads, kv_heads, head_dim, block_size;
};

constexpr int64_t kTokens = 37, kBlocks = 9, kPositions = 500, kLayers = 2;

class RopeCase {
 public:
  RopeCase(const Shape& shape, DType cache, bool with_norm)
      : shape_(shape),
        cache_(cache),
        with_norm_(with_norm),
        scales_(cache, shape.kv_heads),
        random_(shape.head_dim) {
    const int64_t dim = shape.head_dim, half = dim / 2;
    qkv_ = Array::Normal(random_, DType::kF32, {kTokens, (shape.heads + 2 * shape.kv_heads) * dim});
    cos_sin_ = Array(DType::kF32, {kPositions, dim});
    for (int64_t p = 0; p < kPositions; ++p) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * std::pow(10000.0, -2.0 * i / dim);
        cos_sin_.Set(p * dim + i, static_cast<float>(std::cos(angle)));
        cos_sin_.Set(p * dim + half + i, static_cast<float>(std::sin(angle)));
      }
    }
    q_norm_ = Array::Normal(random_, DType::kBF16, {dim});
    k_norm_ = Array::Normal(random_, DType::kF32, {dim});
    for (int64_t t = 0; t < kTokens; ++t) {
      positions_.push_back(static_cast<int32_t>(random_.Below(kPositions)));
      slots_.push_back(shape.block_size + t * 3);  // distinct, none in block 0
    }
    pool_ = Array(cache, {kBlocks, kLayers, 2, shape.kv_heads, shape.block_size, dim});
    pool_.Fill(NAN);
  }

  KvLayerView View(Array& pool) const {
    KvLayerView kv;
    const int64_t per_head = int64_t{shape_.block_size} * shape_.head_dim;
    kv.dtype = cache_;
    kv.head_stride = per_head;
    kv.kv_stride = per_head * shape_.kv_heads;
    kv.block_stride = kv.kv_stride * 2 * kLayers;
    // The second of two layers.
    kv.base =
        static_cast<char*>(pool.data()) + kv.kv_stride * 2 * static_cast<int64_t>(SizeOf(cache_));
    kv.block_size = shape_.block_size;
    kv.num_blocks = kBlocks;
    kv.num_kv_heads = shape_.kv_heads;
    kv.head_dim = shape_.head_dim;
    scales_.Set(kv);
    return kv;
  }

  void Apply(Backend& backend, Array& qkv, Array& pool, int64_t begin, int64_t count) {
    backend.RopeStoreKv({.qkv = qkv.view().Rows(begin, count),
                         .num_heads = shape_.heads,
                         .positions = positions_.data() + begin,
                         .slots = slots_.data() + begin,
                         .cos_sin = cos_sin_.view(),
                         .q_norm = with_norm_ ? q_norm_.view() : TensorView(),
                         .k_norm = with_norm_ ? k_norm_.view() : TensorView(),
                         .norm_eps = 1e-6f,
                         .kv = View(pool)});
  }

  // The head `h` of token `t`, normalised and rotated, in double.
  std::vector<double> Expected(int64_t t, int64_t h) const {
    const int64_t dim = shape_.head_dim, half = dim / 2;
    std::vector<double> head(dim), out(dim);
    const int64_t at = (t * (shape_.heads + 2 * shape_.kv_heads) + h) * dim;
    for (int64_t i = 0; i < dim; ++i) head[i] = qkv_[at + i];
    if (h >= shape_.heads + shape_.kv_heads) return head;  // V
    if (with_norm_) {
      double squares = 0;
      for (double x : head) squares += x * x;
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(dim) + 1e-6);
      const Array& weight = h < shape_.heads ? q_norm_ : k_norm_;
      for (int64_t i = 0; i < dim; ++i) head[i] *= factor * weight[i];
    }
    for (int64_t i = 0; i < half; ++i) {
      const double c = cos_sin_[positions_[t] * dim + i],
                   s = cos_sin_[positions_[t] * dim + half + i];
      out[i] = head[i] * c - head[i + half] * s;
      out[i + half] = head[i + half] * c + head[i] * s;
    }
    return out;
  }

  double Cached(const Array& pool, int64_t t, int kind, int64_t kv_head, int64_t i) const {
    const int64_t block = slots_[t] / shape_.block_size, token = slots_[t] % shape_.block_size;
    const int64_t row = (((block * kLayers + 1) * 2 + kind) * shape_.kv_heads + kv_head);
    return pool[(row * shape_.block_size + token) * shape_.head_dim + i] *
           scales_.Of(kind, kv_head);
  }

  void Check(const Array& qkv, const Array& pool) const {
    const int64_t dim = shape_.head_dim, heads = shape_.heads, kv_heads = shape_.kv_heads;
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t h = 0; h < heads + 2 * kv_heads; ++h) {
        const std::vector<double> expected = Expected(t, h);
        double size = 0;
        for (double x : expected) size = std::max(size, std::abs(x));
        const double rounding = (SumError(dim) + 8 * kRounding) * 2 * size;
        for (int64_t i = 0; i < dim; ++i) {
          const bool is_q = h < heads;
          const int kind = h >= heads + kv_heads ? 1 : 0;
          const double got = is_q ? qkv[(t * (heads + 2 * kv_heads) + h) * dim + i]
                                  : Cached(pool, t, kind, (h - heads) % kv_heads, i);
          const double store = is_q ? 0.0 : StoreError(cache_) * std::abs(expected[i]);
          // Half the smallest step near zero, of float16 and of 8 bits.
          const double least =
              cache_ == DType::kE4M3 ? 0x1p-10 * scales_.Of(kind, (h - heads) % kv_heads) : 0x1p-24;
          ASSERT_NEAR(got, expected[i], rounding + store + (is_q ? 0.0 : least))
              << "token " << t << " head " << h << " dim " << i;
        }
      }
    }
    int64_t untouched = 0;
    for (int64_t i = 0; i < pool.size(); ++i) untouched += std::isnan(pool[i]) ? 1 : 0;
    EXPECT_EQ(untouched, pool.size() - kTokens * 2 * kv_heads * dim);
  }

  const Array& qkv() const { return qkv_; }
  const Array& pool() const { return pool_; }

 private:
  const Shape shape_;
  const DType cache_;
  const bool with_norm_;
  const KvScales scales_;
  Random random_;
  Array qkv_, cos_sin_, q_norm_, k_norm_, pool_;
  std::vector<int32_t> positions_;
  std::vector<int64_t> slots_;
};

TEST(RopeStoreKvTest, MatchesDoubleArithmeticAndBitsDependOnTheTokenAlone) {
  for (const Shape& shape :
       {Shape{4, 2, 64, 16}, {3, 3, 16, 32}, {5, 1, 22, 64}, {1, 1, 128, 16}}) {
    for (DType cache : kKvTypes) {
      for (bool with_norm : {false, true}) {
        RopeCase c(shape, cache, with_norm);
        Array first_qkv, first_pool;
        OnEveryMachine([&](Backend& backend, const Machine& machine) {
          SCOPED_TRACE(machine.name() + " dim " + std::to_string(shape.head_dim) + " " +
                       Name(cache));
          Array qkv = c.qkv().Copy(), pool = c.pool().Copy();
          c.Apply(backend, qkv, pool, 0, kTokens);
          if (first_qkv.size() == 0) {
            first_qkv = qkv.Copy();
            first_pool = pool.Copy();
            c.Check(qkv, pool);
          }
          ASSERT_TRUE(qkv.SameBits(first_qkv));
          ASSERT_TRUE(pool.SameBits(first_pool));
          Array alone = c.qkv().Copy(), alone_pool = c.pool().Copy();
          for (int64_t t = 0; t < kTokens; ++t) c.Apply(backend, alone, alone_pool, t, 1);
          ASSERT_TRUE(alone.SameBits(first_qkv));
          ASSERT_TRUE(alone_pool.SameBits(first_pool));
        });
      }
    }
  }
}

// The value of an 8-bit element by the definition of its format; 0x7f and 0xff are NaN.
double ValueOf(int element) {
  const int exponent = element >> 3 & 15, fraction = element & 7;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return (element & 0x80) != 0 ? -size : size;
}

// The element nearest to `x`, of two the even one, found among all.
int NearestElement(double x) {
  int best = std::signbit(x) ? 0x80 : 0;
  const int first = best;
  for (int element = first; element < first + 0x7f; ++element) {
    const double distance = std::abs(ValueOf(element) - x), least = std::abs(ValueOf(best) - x);
    if (distance < least || (distance == least && element % 2 == 0)) best = element;
  }
  return best;
}

// Values at, between and around all elements, of every size: V is not rotated, and a scale that is
// a power of two makes no rounding of its own.
TEST(RopeStoreKvTest, EightBitElementsAreTheNearestAndSaturate) {
  constexpr int32_t kDim = 2048;
  constexpr float kMost = std::numeric_limits<float>::max();
  std::vector<float> values = {0.0f, -0.0f, 1e-30f, -1e-30f, 449.0f, 464.0f, 1e30f, kMost, -kMost};
  for (int element = 0; element < 0x7e; ++element) {
    const auto here = static_cast<float>(ValueOf(element));
    const float middle = (here + static_cast<float>(ValueOf(element + 1))) / 2;
    for (const float x :
         {here, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      values.push_back(x);
      values.push_back(-x);
    }
  }
  ASSERT_LE(values.size(), size_t{kDim});
  for (const float scale : {1.0f, 0.125f, 64.0f}) {
    Array qkv(DType::kF32, {1, 3 * kDim}), table(DType::kF32, {1, kDim});
    Array pool(DType::kE4M3, {2, 2, 1, 16, kDim});
    qkv.Fill(0);
    table.Fill(0);
    for (size_t i = 0; i < values.size(); ++i) {
      qkv.Set(2 * kDim + static_cast<int64_t>(i), values[i] * (scale < 1 ? scale : 1));
    }
    const int32_t position = 0;
    const int64_t slot = 16;
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name());
      backend.RopeStoreKv({.qkv = qkv.view(),
                           .num_heads = 1,
                           .positions = &position,
                           .slots = &slot,
                           .cos_sin = table.view(),
                           .q_norm = {},
                           .k_norm = {},
                           .norm_eps = 0,
                           .kv = {.base = pool.data(),
                                  .dtype = DType::kE4M3,
                                  .block_stride = 2 * 16 * kDim,
                                  .kv_stride = 16 * kDim,
                                  .head_stride = 16 * kDim,
                                  .block_size = 16,
                                  .num_blocks = 2,
                                  .num_kv_heads = 1,
                                  .head_dim = kDim,
                                  .k_scales = &scale,
                                  .v_scales = &scale}});
      const auto* stored = static_cast<const uint8_t*>(pool.data()) + 3 * 16 * kDim;
      for (size_t i = 0; i < values.size(); ++i) {
        const double x = qkv[2 * kDim + static_cast<int64_t>(i)] / double{scale};
        ASSERT_EQ(stored[i], NearestElement(x)) << x;
      }
    });
  }
}

}  // namespace
}  // namespace quire

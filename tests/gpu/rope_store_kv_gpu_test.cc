// RopeStoreKv on the device against double arithmetic, into a poisoned pool: every element that no
// token owns must keep its value.
#include <numeric>

#include "kernels/device_limits.h"
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

struct Shape {
  int32_t heads, kv_heads, dim, block_size;
  bool normalised = false;
  DType dtype = DType::kBF16;
  DType norm = DType::kBF16;
  bool eight_bit_kv = false;

  DType kv_dtype() const { return eight_bit_kv ? DType::kE4M3 : dtype; }
};

constexpr int64_t kPositions = 500;
constexpr float kEps = 1e-6f;

Array Table(int64_t dim) {
  Array table(DType::kF32, {kPositions, dim});
  for (int64_t p = 0; p < kPositions; ++p) {
    for (int64_t i = 0; i < dim / 2; ++i) {
      const double angle =
          static_cast<double>(p) / std::pow(10000.0, 2.0 * i / static_cast<double>(dim));
      table.Set(p * dim + i, static_cast<float>(std::cos(angle)));
      table.Set(p * dim + dim / 2 + i, static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

class RopeCase {
 public:
  RopeCase(const Shape& s, int64_t tokens)
      : s_(s),
        tokens_(tokens),
        width_((s.heads + 2 * s.kv_heads) * s.dim),
        random_(static_cast<uint64_t>(s.heads * 1000 + s.dim + tokens)),
        qkv_(Array::Normal(random_, s.dtype, {tokens, width_})),
        table_(Table(s.dim)),
        q_norm_(Array::Normal(random_, s.norm, {s.dim})),
        k_norm_(Array::Normal(random_, s.norm, {s.dim})),
        device_qkv_(s.dtype, tokens, width_, 8),
        device_table_(DType::kF32, kPositions, s.dim, table_),
        device_q_norm_(s.norm, 1, s.dim, q_norm_),
        device_k_norm_(s.norm, 1, s.dim, k_norm_),
        blocks_(tokens / s.block_size + 3),
        pool_(s.kv_dtype(), blocks_, BlockStride()),
        scales_(s.kv_dtype(), s.kv_heads),
        device_k_scales_(scales_.k),
        device_v_scales_(scales_.v),
        slots_(static_cast<size_t>(tokens)),
        positions_(static_cast<size_t>(tokens)) {
    // Every slot at most once, in random order, and no slot of block 0.
    std::vector<int64_t> all(static_cast<size_t>((blocks_ - 1) * s.block_size));
    std::iota(all.begin(), all.end(), s.block_size);
    for (size_t t = 0; t < slots_.size(); ++t) {
      std::swap(all[t],
                all[t + static_cast<size_t>(random_.Below(static_cast<int64_t>(all.size() - t)))]);
      slots_[t] = all[t];
      positions_[t] = static_cast<int32_t>(random_.Below(kPositions));
    }
    device_slots_ = DeviceArray<int64_t>(slots_);
    device_positions_ = DeviceArray<int32_t>(positions_);
  }

  void Run(const cuda::Device& device) {
    device_qkv_.Set(qkv_);
    pool_.Poison();
    Enqueue(0, tokens_, device);
  }
  void RunOneByOne() {
    device_qkv_.Set(qkv_);
    pool_.Poison();
    for (int64_t t = 0; t < tokens_; ++t) Enqueue(t, 1, TestDevice());
  }
  void Enqueue(int64_t begin, int64_t count, const cuda::Device& device) {
    const auto norm = [&](const DeviceTensor& weight) {
      return s_.normalised ? TensorView(weight.view().data, s_.norm, {s_.dim}) : TensorView();
    };
    cuda::RopeStoreKv({.qkv = device_qkv_.view().Rows(begin, count),
                       .num_heads = s_.heads,
                       .positions = device_positions_.data() + begin,
                       .slots = device_slots_.data() + begin,
                       .cos_sin = device_table_.view(),
                       .q_norm = norm(device_q_norm_),
                       .k_norm = norm(device_k_norm_),
                       .norm_eps = kEps,
                       .kv = {.base = pool_.view().data,
                              .dtype = s_.kv_dtype(),
                              .block_stride = BlockStride(),
                              .kv_stride = KvStride(),
                              .head_stride = int64_t{s_.block_size} * s_.dim,
                              .block_size = s_.block_size,
                              .num_blocks = static_cast<int32_t>(blocks_),
                              .num_kv_heads = s_.kv_heads,
                              .head_dim = s_.dim,
                              .k_scales = s_.eight_bit_kv ? device_k_scales_.data() : nullptr,
                              .v_scales = s_.eight_bit_kv ? device_v_scales_.data() : nullptr}},
                      device);
  }
  std::string Bytes() const {
    Array qkv = device_qkv_.Get(), pool = pool_.Get();
    return std::string(static_cast<char*>(qkv.data()), qkv.byte_size()) +
           std::string(static_cast<char*>(pool.data()), pool.byte_size());
  }

  void Check() {
    Array qkv = device_qkv_.Get(), pool = pool_.Get();
    Array expected_pool(s_.kv_dtype(), {blocks_, BlockStride()});
    std::memset(expected_pool.data(), 0xFF, expected_pool.byte_size());
    for (int64_t t = 0; t < tokens_; ++t) {
      for (int32_t h = 0; h < s_.heads; ++h) {
        CheckHead(t, h, s_.dtype, [&](int64_t i) { return qkv[t * width_ + h * s_.dim + i]; });
      }
      for (int32_t h = 0; h < s_.kv_heads; ++h) {
        const int64_t k = Place(t, 0, h), v = Place(t, 1, h);
        CheckHead(t, s_.heads + h, s_.kv_dtype(),
                  [&](int64_t i) { return pool[k + i] * scales_.Of(0, h); });
        for (int64_t i = 0; i < s_.dim; ++i) {
          ASSERT_EQ(pool[v + i], Stored(In(t, s_.heads + s_.kv_heads + h, i), h));
          expected_pool.Set(v + i, static_cast<float>(pool[v + i]));
          expected_pool.Set(k + i, static_cast<float>(pool[k + i]));
        }
      }
    }
    // Elements that no token owns have their old values.
    EXPECT_TRUE(pool.SameBits(expected_pool));
  }

 private:
  int64_t KvStride() const { return int64_t{s_.kv_heads} * s_.block_size * s_.dim + 16; }
  int64_t BlockStride() const { return 2 * KvStride() + 32; }
  int64_t Place(int64_t t, int kind, int64_t head) const {
    const int64_t slot = slots_[static_cast<size_t>(t)];
    return slot / s_.block_size * BlockStride() + kind * KvStride() +
           (head * s_.block_size + slot % s_.block_size) * s_.dim;
  }
  double In(int64_t t, int64_t head, int64_t i) const {
    return qkv_[t * width_ + head * s_.dim + i];
  }
  // A value as V keeps it: the same bits as on the CPU, whose test has the elements by definition.
  double Stored(double value, int32_t head) const {
    if (!s_.eight_bit_kv) return value;
    const float inverse = 1.0f / scales_.v[static_cast<size_t>(head)];
    return ToFloat(FromFloat<E4M3>(static_cast<float>(value) * inverse));
  }
  // `get` gives the head's values, which were stored as `dtype`.
  template <typename Get>
  void CheckHead(int64_t t, int32_t head, DType dtype, Get get) {
    std::vector<double> x(static_cast<size_t>(s_.dim));
    double squares = 0;
    for (int64_t i = 0; i < s_.dim; ++i) squares += In(t, head, i) * In(t, head, i);
    const double factor = 1.0 / std::sqrt(squares / s_.dim + kEps);
    const Array& norm = head < s_.heads ? q_norm_ : k_norm_;
    for (int64_t i = 0; i < s_.dim; ++i) {
      x[static_cast<size_t>(i)] = In(t, head, i) * (s_.normalised ? factor * norm[i] : 1.0);
    }
    const int64_t half = s_.dim / 2, row = positions_[static_cast<size_t>(t)] * int64_t{s_.dim};
    for (int64_t i = 0; i < s_.dim; ++i) {
      const double c = table_[row + i % half], s = table_[row + half + i % half];
      const double own = x[static_cast<size_t>(i)];
      const double partner = x[static_cast<size_t>(i < half ? i + half : i - half)];
      const double exact = own * c + (i < half ? -partner : partner) * s;
      // Norms round twice before the rotation; a stored element is rounded once.
      const double before = (s_.normalised ? 2.1 * StoreError(s_.dtype) : 0.0) + 1e-6;
      ASSERT_LE(std::abs(get(i) - exact), before * (std::abs(own * c) + std::abs(partner * s)) +
                                              StoreError(dtype) * std::abs(exact) +
                                              (dtype == DType::kE4M3 ? 0x1p-9 : 1e-7))
          << "token " << t << " head " << head << " element " << i;
    }
  }

  const Shape s_;
  const int64_t tokens_, width_;
  Random random_;
  Array qkv_, table_, q_norm_, k_norm_;
  DeviceTensor device_qkv_, device_table_, device_q_norm_, device_k_norm_;
  const int64_t blocks_;
  DeviceTensor pool_;
  const KvScales scales_;
  const DeviceArray<float> device_k_scales_, device_v_scales_;
  std::vector<int64_t> slots_;
  std::vector<int32_t> positions_;
  DeviceArray<int64_t> device_slots_{0};
  DeviceArray<int32_t> device_positions_{0};
};

TEST(RopeStoreKvGpuTest, MatchesDoubleArithmeticAndTouchesNothingElse) {
  for (const Shape& shape : {Shape{32, 8, 128, 64}, Shape{14, 2, 64, 16}, Shape{1, 1, 64, 32},
                             Shape{16, 1, 128, 32}, Shape{3, 3, 128, 16}}) {
    for (DType dtype : kFloatTypes) {
      for (int normalised : {0, 1, 2}) {
        Shape s = shape;
        s.dtype = dtype;
        s.normalised = normalised > 0;
        s.norm = normalised == 2 ? DType::kF32 : dtype;
        for (int64_t tokens : {1, 7, 61}) {
          SCOPED_TRACE(std::string(Name(dtype)) + " heads " + std::to_string(s.heads) + " dim " +
                       std::to_string(s.dim) + " norms " + std::to_string(normalised));
          RopeCase c(s, tokens);
          c.Run(TestDevice());
          c.Check();
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// Every size of a head, those that fill their lanes and those that leave some idle, with few heads
// and with enough that a lane takes several.
TEST(RopeStoreKvGpuTest, MatchesDoubleArithmeticForEverySizeOfAHead) {
  for (int32_t dim = 16; dim <= kCudaLimits.max_head_dim; dim += kCudaLimits.head_multiple) {
    for (DType dtype : kFloatTypes) {
      for (int normalised : {0, 1, 2}) {
        const DType norm = normalised == 2 ? DType::kF32 : dtype;
        for (int64_t tokens : {1, 3, 23}) {
          SCOPED_TRACE(std::string(Name(dtype)) + " dim " + std::to_string(dim) + " norms " +
                       std::to_string(normalised));
          RopeCase c({5, 2, dim, 16, normalised > 0, dtype, norm}, tokens);
          c.Run(TestDevice());
          c.Check();
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(RopeStoreKvGpuTest, MatchesDoubleArithmeticOfManyHeads) {
  for (int32_t dim : {16, 48, 80, 96, 160, 256}) {
    for (bool normalised : {false, true}) {
      SCOPED_TRACE("dim " + std::to_string(dim) + " norms " + std::to_string(normalised));
      // 72 heads a token, of at least two lanes each: more lanes than four times the device's.
      const int64_t tokens = 4 * 1024 * int64_t{TestDevice().num_sms} / (72 * dim / 8) + 3;
      RopeCase c({54, 9, dim, 32, normalised}, tokens);
      c.Run(TestDevice());
      c.Check();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(RopeStoreKvGpuTest, StoresEightBitsOfEverySizeOfAHead) {
  for (int32_t dim = 16; dim <= kCudaLimits.max_head_dim; dim += kCudaLimits.head_multiple) {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      for (bool normalised : {false, true}) {
        for (int64_t tokens : {1, 23, 3000}) {
          SCOPED_TRACE(std::string(Name(dtype)) + " dim " + std::to_string(dim) + " norms " +
                       std::to_string(normalised) + " tokens " + std::to_string(tokens));
          if (tokens > 100 && dim % 64 != 0) continue;
          RopeCase c({5, 3, dim, 16, normalised, dtype, DType::kF32, true}, tokens);
          c.Run(TestDevice());
          c.Check();
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(RopeStoreKvGpuTest, BitsDoNotDependOnTheBatchOrRepetition) {
  for (int32_t dim : {128, 80, 256}) {
    for (bool normalised : {false, true}) {
      RopeCase c({32, 8, dim, 64, normalised}, 256);
      ExpectSameBits([&](const cuda::Device& device) { c.Run(device); }, [&] { return c.Bytes(); });
      const std::string together = c.Bytes();
      c.RunOneByOne();
      EXPECT_EQ(c.Bytes(), together);
    }
  }
}

}  // namespace
}  // namespace quire::gpu

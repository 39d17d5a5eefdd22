// Fills, runs and checks the timed cases.
#include "tests/kernels/timed_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "kernels/sampling_math.h"

namespace quire {
namespace {

constexpr size_t kCacheBytes = 4u << 20;     // up to this size weights are timed in the caches
constexpr size_t kMemoryBytes = 256u << 20;  // larger weights are timed out of this many bytes
constexpr int32_t kBlock = 16;

constexpr MatMulShape kMatMulShapes[] = {
    {1, 256, 1024, DType::kF32},    {1, 256, 1024, DType::kBF16},   {1, 2048, 8192, DType::kBF16},
    {4, 256, 1024, DType::kF32},    {4, 256, 1024, DType::kBF16},   {4, 2048, 8192, DType::kBF16},
    {16, 256, 1024, DType::kF32},   {16, 256, 1024, DType::kBF16},  {16, 2048, 8192, DType::kBF16},
    {64, 256, 1024, DType::kF32},   {64, 256, 1024, DType::kBF16},  {64, 2048, 8192, DType::kBF16},
    {512, 256, 1024, DType::kF32},  {512, 256, 1024, DType::kBF16}, {512, 2048, 8192, DType::kBF16},
    {1, 4096, 14336, DType::kBF16}, {1, 4096, 14336, DType::kF32},  {64, 4096, 4096, DType::kBF16},
};

constexpr AttentionShape kAttentionShapes[] = {
    {1, 256, 1, 4, 2, 64, DType::kF32},      {16, 256, 1, 4, 2, 64, DType::kF32},
    {1, 8192, 1, 32, 8, 128, DType::kBF16},  {16, 4096, 1, 32, 8, 128, DType::kBF16},
    {1, 512, 512, 4, 2, 64, DType::kF32},    {1, 2048, 512, 4, 2, 64, DType::kF32},
    {1, 2048, 512, 8, 2, 128, DType::kBF16},
};

std::vector<SampleSetting> AllSampleSettings() {
  const SampleSetting settings[] = {
      {"greedy", 0, {.temperature = 0}},
      {"temperature", 0, {.temperature = 0.8f, .seed = 5}},
      {"top_k", 0, {.temperature = 0.8f, .top_k = 50, .seed = 5}},
      {"top_p", 0, {.temperature = 0.8f, .top_p = 0.95f, .seed = 5}},
      {"top_k_p", 0, {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .seed = 5}},
      {"min_p", 0, {.temperature = 0.8f, .min_p = 0.05f, .seed = 5}},
      {"penalties", 0, {.temperature = 0.8f, .repetition_penalty = 1.1f, .seed = 5}},
  };
  std::vector<SampleSetting> all;
  for (const int64_t vocab : {2048, 131072}) {
    for (SampleSetting s : settings) {
      s.vocab = vocab;
      all.push_back(s);
    }
  }
  return all;
}

void FillUniformly(Buffer& buffer, DType dtype) {
  DispatchFloat(dtype, [&](auto tag) {
    using T = decltype(tag);
    std::minstd_rand random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<T> pattern(1 << 16);
    for (T& x : pattern) x = FromFloat<T>(uniform(random));
    T* to = static_cast<T*>(buffer.data());
    const size_t count = buffer.bytes() / sizeof(T);
    for (size_t i = 0; i < count; ++i) to[i] = pattern[(i * 40503u >> 3) % pattern.size()];
  });
}

double WeightAt(const TensorView& w, int64_t row, int64_t column) {
  return DispatchFloat(w.dtype, [&](auto tag) {
    return static_cast<double>(ToFloat(w.row<decltype(tag)>(row)[column]));
  });
}

float ConstantV(int64_t i, int32_t head_dim) { return static_cast<float>(i % head_dim % 7) - 3.0f; }

}  // namespace

std::string MatMulShape::name() const {
  return "matmul/T:" + std::to_string(tokens) + "/k:" + std::to_string(k) +
         "/n:" + std::to_string(n) + "/" + Name(dtype);
}

std::span<const MatMulShape> MatMulShapes() { return kMatMulShapes; }

MatMulCase::MatMulCase(const MatMulShape& shape, Backend& backend)
    : shape_(shape), backend_(backend) {
  const size_t bytes = shape.weight_bytes();
  if (bytes > kCacheBytes) copies_ = 1 + kMemoryBytes / bytes;
  weights_ = backend.Allocate(bytes * copies_);
  x_ = backend.Allocate(static_cast<size_t>(shape.tokens * shape.k) * sizeof(float));
  out_ = backend.Allocate(static_cast<size_t>(shape.tokens * shape.n) * sizeof(float));
  FillUniformly(weights_, shape.dtype);
  FillUniformly(x_, DType::kF32);
  x_view_ = TensorView(x_.data(), DType::kF32, {shape.tokens, shape.k});
  out_view_ = TensorView(out_.data(), DType::kF32, {shape.tokens, shape.n});
  w_ = TensorView(weights_.data(), shape.dtype, {shape.n, shape.k});
}

void MatMulCase::Run() {
  char* weights = static_cast<char*>(weights_.data()) + turn_ * shape_.weight_bytes();
  w_ = TensorView(weights, shape_.dtype, {shape_.n, shape_.k});
  turn_ = (turn_ + 1) % copies_;
  backend_.MatMul({.x = x_view_, .w = w_, .out = out_view_});
}

bool MatMulCase::Right() const {
  for (int64_t i = 0; i < out_view_.size(); i += 97) {
    const int64_t t = i / shape_.n, j = i % shape_.n;
    double sum = 0, size = 0;
    for (int64_t c = 0; c < shape_.k; ++c) {
      const double product = x_view_.row<float>(t)[c] * WeightAt(w_, j, c);
      sum += product;
      size += std::abs(product);
    }
    // k / 16 fused additions a lane, the tree over the lanes, one rounding more.
    const double bound = (static_cast<double>(shape_.k) / 16 + 7) * 0x1p-24 * size;
    if (!(std::abs(out_view_.row<float>(t)[j] - sum) <= bound)) return false;
  }
  return true;
}

std::string AttentionShape::name() const {
  return "attention/S:" + std::to_string(sequences) + "/context:" + std::to_string(context) +
         "/queries:" + std::to_string(queries) + "/heads:" + std::to_string(heads) + "x" +
         std::to_string(kv_heads) + "x" + std::to_string(head_dim) + "/" + Name(dtype);
}

double AttentionShape::kv_bytes() const {
  return 2.0 * sequences * context * kv_heads * head_dim * static_cast<double>(SizeOf(dtype));
}

double AttentionShape::flops() const {
  const double keys = queries * (context - (queries - 1) / 2.0);
  return 4.0 * sequences * keys * heads * head_dim;
}

std::span<const AttentionShape> AttentionShapes() { return kAttentionShapes; }

AttentionCase::AttentionCase(const AttentionShape& s, Backend& backend)
    : shape_(s), backend_(backend) {
  const int32_t blocks_each = (s.context + kBlock - 1) / kBlock;
  const int64_t width = int64_t{s.heads} * s.head_dim, tokens = int64_t{s.sequences} * s.queries;
  kv_.dtype = s.dtype;
  kv_.head_stride = int64_t{kBlock} * s.head_dim;
  kv_.kv_stride = kv_.head_stride * s.kv_heads;
  kv_.block_stride = 2 * kv_.kv_stride;
  kv_.block_size = kBlock;
  kv_.num_blocks = 1 + s.sequences * blocks_each;
  kv_.num_kv_heads = s.kv_heads;
  kv_.head_dim = s.head_dim;
  pool_ = backend.Allocate(kv_.num_blocks * kv_.block_stride * SizeOf(s.dtype));
  kv_.base = pool_.data();
  q_ = backend.Allocate(tokens * width * sizeof(float));
  out_ = backend.Allocate(tokens * width * sizeof(float));
  params_.q = TensorView(q_.data(), DType::kF32, {tokens, width});
  params_.out = TensorView(out_.data(), DType::kF32, {tokens, width});
  Fill();
  for (int32_t i = 0; i <= s.sequences; ++i) {
    begin_.push_back(i * s.queries);
    row_.push_back(i);
    length_.push_back(s.context);
  }
  for (int32_t b = 1; b < kv_.num_blocks; ++b) table_.push_back(b);
  std::shuffle(table_.begin(), table_.end(), std::minstd_rand(3));
  params_.kv = kv_;
  params_.num_heads = s.heads;
  params_.num_seqs = s.sequences;
  params_.query_begin = begin_.data();
  params_.context_len = length_.data();
  params_.table_row = row_.data();
  params_.block_table = table_.data();
  params_.table_stride = blocks_each;
  params_.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  params_.max_query_len = s.queries;
}

void AttentionCase::Fill() {
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  float* q = static_cast<float*>(q_.data());
  for (int64_t i = 0; i < params_.q.size(); ++i) q[i] = uniform(random);
  DispatchFloat(shape_.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* kv = static_cast<T*>(pool_.data());
    for (int64_t i = 0; i < kv_.num_blocks * kv_.block_stride; ++i) {
      const bool is_v = i / kv_.kv_stride % 2 == 1;
      kv[i] = FromFloat<T>(is_v ? ConstantV(i, shape_.head_dim) : uniform(random));
    }
  });
}

bool AttentionCase::Right() const {
  for (int64_t t = 0; t < params_.out.dim[0]; ++t) {
    for (int64_t i = 0; i < params_.out.dim[1]; ++i) {
      const float error = params_.out.row<float>(t)[i] - ConstantV(i, shape_.head_dim);
      if (!(std::abs(error) <= 1e-4f)) return false;
    }
  }
  return true;
}

std::span<const SampleSetting> SampleSettings() {
  static const std::vector<SampleSetting> settings = AllSampleSettings();
  return settings;
}

SampleCase::SampleCase(const SampleSetting& setting, Backend& backend)
    : setting_(setting), backend_(backend), row_(setting.vocab), scratch_(setting.vocab) {
  std::minstd_rand random(1);
  std::normal_distribution<float> normal(0, 2);
  for (float& l : row_) l = normal(random);
  for (int64_t i = 0; i < 1000; ++i) tokens_.push_back(static_cast<int32_t>(i * 7 % setting.vocab));
  job_ = {.params = setting.params, .tokens = tokens_.data(), .num_prompt = 500, .num_known = 1000};
}

void SampleCase::Run() {
  std::memcpy(scratch_.data(), row_.data(), row_.size() * sizeof(float));
  backend_.Sample({.logits = TensorView(scratch_.data(), DType::kF32, {1, setting_.vocab}),
                   .jobs = &job_,
                   .results = &result_});
}

bool SampleCase::Right() const {
  const SampleRow& params = setting_.params;
  if (result_.nonfinite != 0 || result_.token < 0 || result_.token >= setting_.vocab) return false;
  std::vector<double> logits(row_.begin(), row_.end());
  if (params.repetition_penalty != 1) {
    std::vector<bool> seen(logits.size());
    for (const int32_t token : tokens_) seen[static_cast<size_t>(token)] = true;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!seen[i]) continue;
      const double penalty = params.repetition_penalty;
      logits[i] = logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty;
    }
  }
  if (params.top_k > 0 || params.top_p < 1 || params.min_p > 0) {
    // A filter keeps the likeliest tokens, so the tokens at least as likely as the drawn one must
    // fit in the filter. The margin of a hundredth is for the sampler's rounding at the threshold.
    const double top = *std::max_element(logits.begin(), logits.end());
    double total = 0, above = 0, p = 0;
    int64_t rank = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double x = std::exp((logits[i] - top) / params.temperature);
      total += x;
      if (logits[i] > logits[static_cast<size_t>(result_.token)]) above += x, ++rank;
      if (static_cast<int32_t>(i) == result_.token) p = x;
    }
    return (params.top_k == 0 || rank < params.top_k) && above <= (params.top_p + 0.01) * total &&
           p >= params.min_p * 0.99;
  }
  double best = -INFINITY;
  int32_t token = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<uint32_t>(i);
    const double score =
        params.temperature == 0
            ? logits[i]
            : logits[i] / params.temperature +
                  GumbelNoise(params.seed, static_cast<uint32_t>(job_.num_known), id);
    if (score > best) best = score, token = static_cast<int32_t>(i);
  }
  return result_.token == token;
}

}  // namespace quire

// The cases of the kernel benchmarks, which tests check too: one list of shapes, one way to fill
// and run them, one check. A benchmark reports no figure for a case that is not Right().
//
// A case allocates on its backend, which must outlive it. One thread uses a case.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace quire {

// x [tokens, k] times w [n, k] transposed: the products of a decode step and of a prompt's.
struct MatMulShape {
  int64_t tokens, k, n;
  DType dtype;  // of the weights
  std::string name() const;
  size_t weight_bytes() const { return static_cast<size_t>(n * k) * SizeOf(dtype); }
};
std::span<const MatMulShape> MatMulShapes();

class MatMulCase {
 public:
  // Weights larger than the caches are several matrices of 256 MB together, used in turn, so that
  // each run reads its weights from memory, as the layers of a model do.
  MatMulCase(const MatMulShape& shape, Backend& backend);

  void Run();
  // True if every 97th element of the last result is within the rounding of k products.
  bool Right() const;
  double flops() const { return 2.0 * shape_.tokens * shape_.k * shape_.n; }
  const Buffer& weights() const { return weights_; }
  TensorView out() const { return out_view_; }

 private:
  const MatMulShape shape_;
  Backend& backend_;
  size_t copies_ = 1, turn_ = 0;
  Buffer weights_, x_, out_;
  TensorView w_;  // of the last run
  TensorView x_view_, out_view_;
};

// A step in which every sequence has the same context and adds the same number of queries.
struct AttentionShape {
  int32_t sequences, context, queries, heads, kv_heads, head_dim;
  DType dtype;  // of the cache
  std::string name() const;
  double kv_bytes() const;  // when each key and value is read once
  double flops() const;     // causal: a query sees the tokens up to its own
};
std::span<const AttentionShape> AttentionShapes();

// Keys and queries are random. V is the same at every position, so the output is V for any weights:
// a check without a reference as expensive as the kernel.
class AttentionCase {
 public:
  AttentionCase(const AttentionShape& shape, Backend& backend);

  void Run() { backend_.PagedAttention(params_); }
  bool Right() const;
  const Buffer& pool() const { return pool_; }
  TensorView out() const { return params_.out; }

 private:
  void Fill();

  const AttentionShape shape_;
  Backend& backend_;
  KvLayerView kv_;
  Buffer pool_, q_, out_;
  std::vector<int32_t> begin_, row_, length_, table_;
  PagedAttentionParams params_{};
};

// The draw of one row with one setting of the sampler.
struct SampleSetting {
  const char* name;
  int64_t vocab;
  SampleRow params;
};
std::span<const SampleSetting> SampleSettings();

class SampleCase {
 public:
  SampleCase(const SampleSetting& setting, Backend& backend);

  // The sampler overwrites its row, so each run samples a copy.
  void Run();
  // True if the last token is the one of the definition, computed in double. With a filter: true if
  // the filter keeps the last token.
  bool Right() const;
  const SampleResult& result() const { return result_; }
  SampleResult& result() { return result_; }
  std::span<const float> row() const { return row_; }

 private:
  const SampleSetting setting_;
  Backend& backend_;
  std::vector<float> row_, scratch_;
  std::vector<int32_t> tokens_;
  SampleJob job_;
  SampleResult result_;
};

}  // namespace quire

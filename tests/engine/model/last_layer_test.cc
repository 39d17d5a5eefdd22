// In the last layer a token that needs no logits passes the product that makes its keys and values,
// and no other. That the logits stay right is parity_test's.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/engine/forwarding_backend.h"
#include "tests/engine/model/model_runner.h"

namespace quire::testing {
namespace {

class WatchedProducts final : public ForwardingBackend {
 public:
  void MatMul(const MatMulParams& p) override {
    rows.push_back(p.x.dim[0]);
    ForwardingBackend::MatMul(p);
  }
  void PagedAttention(const PagedAttentionParams& p) override {
    ++attentions;
    ForwardingBackend::PagedAttention(p);
  }

  std::vector<int64_t> rows;  // of each product
  int attentions = 0;
};

constexpr int32_t kTokens = 6;
constexpr size_t kProducts = 4;  // of a layer: q, k and v; o; gate and up; down

class LastLayer : public ::testing::TestWithParam<const char*> {
 protected:
  // Runs one step of kTokens tokens and returns the rows of its products.
  std::vector<int64_t> RowsOf(const std::vector<int32_t>& logit_rows) {
    backend_.rows.clear();
    backend_.attentions = 0;
    runner_.Run({{.tokens = {5, 6, 7, 8, 9, 10}, .logit_rows = logit_rows}});
    return backend_.rows;
  }
  size_t layers() const { return static_cast<size_t>(runner_.config().num_layers); }
  // Up to and including the last layer's q, k and v.
  size_t full() const { return kProducts * (layers() - 1) + 1; }

  WatchedProducts backend_;
  ModelRunner runner_{GetParam(), {}, {}, backend_};
};

TEST_P(LastLayer, OfAPromptsEndOneRowIsLeft) {
  std::vector<int64_t> expected(full(), kTokens);
  expected.insert(expected.end(), kProducts, 1);  // o, gate and up, down, and the vocabulary
  EXPECT_EQ(RowsOf({kTokens - 1}), expected);
}

TEST_P(LastLayer, OfAPromptsMiddleNothingIsLeft) {
  EXPECT_EQ(RowsOf({}), std::vector<int64_t>(full(), kTokens));
  EXPECT_EQ(backend_.attentions, static_cast<int>(layers()) - 1);
}

TEST_P(LastLayer, TokensThatAllNeedLogitsStay) {
  EXPECT_EQ(RowsOf({0, 1, 2, 3, 4, 5}), std::vector<int64_t>(full() + kProducts, kTokens));
}

INSTANTIATE_TEST_SUITE_P(Blocks, LastLayer, ::testing::Values("llama", "cohere", "gemma2"));

}  // namespace
}  // namespace quire::testing

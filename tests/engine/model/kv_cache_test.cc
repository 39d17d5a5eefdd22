// The pool's layout: every element of every layer has its own place, and a block is one run.
#include "engine/model/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(KvCacheTest, LayersTileEachBlockWithoutOverlap) {
  const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 1)[0]);
  const KvLayout layout{
      .num_layers = 3, .num_kv_heads = 2, .head_dim = 4, .block_size = 16, .dtype = DType::kBF16};
  EXPECT_EQ(layout.block_bytes(), 3 * 2 * 2 * 16 * 4 * 2);
  absl::StatusOr<KvCache> cache = KvCache::Create(*backend, layout, 5);
  ASSERT_TRUE(cache.ok()) << cache.status();
  EXPECT_EQ(cache->num_blocks(), 5);
  for (int32_t block = 0; block < 5; ++block) {
    const char* begin = static_cast<char*>(cache->block_data(block));
    EXPECT_EQ(begin - static_cast<char*>(cache->block_data(0)), block * layout.block_bytes());
    std::set<int64_t> offsets;
    for (int32_t index = 0; index < 3; ++index) {
      const KvLayerView view = cache->layer(index);
      EXPECT_EQ(view.num_blocks, 5);
      for (int64_t kv = 0; kv < 2; ++kv) {
        for (int64_t head = 0; head < 2; ++head) {
          for (int64_t i = 0; i < 16 * 4; ++i) {
            const char* element =
                static_cast<char*>(view.base) +
                2 * (block * view.block_stride + kv * view.kv_stride + head * view.head_stride + i);
            offsets.insert(element - begin);
          }
        }
      }
    }
    EXPECT_EQ(static_cast<int64_t>(offsets.size()), layout.block_bytes() / 2);
    EXPECT_EQ(*offsets.begin(), 0);
    EXPECT_EQ(*offsets.rbegin(), layout.block_bytes() - 2);
  }
  // [layer][k/v][head][token][dim]
  EXPECT_EQ(static_cast<char*>(cache->layer(1).base) - static_cast<char*>(cache->layer(0).base),
            2 * 2 * 2 * 16 * 4);
  EXPECT_GT(cache->layer(0).kv_stride, cache->layer(0).head_stride);
}

TEST(KvCacheTest, NamesTheSizesWhenMemoryIsMissing) {
  const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 1)[0]);
  const KvLayout layout{
      .num_layers = 4096, .num_kv_heads = 16384, .head_dim = 1024, .block_size = 64};
  absl::StatusOr<KvCache> cache =
      KvCache::Create(*backend, layout, std::numeric_limits<int32_t>::max());
  EXPECT_EQ(cache.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(cache.status().message()),
              AllOf(HasSubstr("2147483647 blocks"), HasSubstr("64 tokens")));
  // No overflow, and still more than any machine has.
  EXPECT_EQ(KvCache::Create(*backend, layout, 100).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace quire

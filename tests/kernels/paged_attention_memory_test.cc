// PagedAttention over a long context: after the first call, a call allocates no memory that grows
// with the context.
#include <gtest/gtest.h>

#include "tests/allocations.h"
#include "tests/kernels/cases.h"

namespace quire {
namespace {

TEST(PagedAttentionMemoryTest, LongContextAllocatesNothing) {
  constexpr int32_t kHeads = 8, kDim = 64, kBlock = 16, kContext = 20000, kQueries = 8;
  constexpr int64_t kBlocks = kContext / kBlock + 1;
  const auto backend = MakeBackend({cpu::BestIsa(), 3});
  Array pool(DType::kBF16, {kBlocks, 2, 1, kBlock, kDim});
  Array q(DType::kF32, {kQueries, kHeads * kDim}), out(DType::kF32, {kQueries, kHeads * kDim});
  const std::vector<int32_t> table(kBlocks, 1);
  const int32_t query_begin[] = {0, kQueries}, context_len = kContext, table_row = 0;
  const auto attend = [&] {
    backend->PagedAttention({.q = q.view(),
                             .kv = {.base = pool.data(),
                                    .dtype = DType::kBF16,
                                    .block_stride = 2 * kBlock * kDim,
                                    .kv_stride = kBlock * kDim,
                                    .head_stride = kBlock * kDim,
                                    .block_size = kBlock,
                                    .num_blocks = kBlocks,
                                    .num_kv_heads = 1,
                                    .head_dim = kDim},
                             .num_heads = kHeads,
                             .num_seqs = 1,
                             .query_begin = query_begin,
                             .context_len = &context_len,
                             .table_row = &table_row,
                             .block_table = table.data(),
                             .table_stride = kBlocks,
                             .scale = 0.125f,
                             .window = 0,
                             .max_query_len = query_begin[1],
                             .out = out.view()});
  };
  attend();
  const Allocations second = AllocationsOf(attend);
  // A thread without work in the first call allocates its buffers in the second: K and V of 16
  // keys, and twice the states of 64 rows.
  constexpr int64_t kThreadRoom = 4 * (2 * 16 * kDim + 2 * 64 * (kDim + 16));
  EXPECT_LE(second.bytes, 3 * kThreadRoom);
}

}  // namespace
}  // namespace quire

// GroupedMatMul: x * w^T for packed w (kernels/packed_row.h), at the speed of reading the weights
// for at most 16 tokens, and in as many such reads as it takes for some more.
//
// Of GroupedMatMul, k and the columns that share a scale alone fix the order of every sum. So a
// token's results have the same bits with any other tokens in the product, on any number of
// multiprocessors, and for any slice of 16 rows of w.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace quire::cuda {

// Four reads of the packed weights took longer than an expansion; a read serves 16 tokens.
inline constexpr int kMaxGroupedTokens = 32;

// Call once per process and device, before the first GroupedMatMul and outside a capture.
void PrepareGroupedMatMul();
// True if w is packed, has a multiple of 16 rows, scales are shared by 32, 64 or a multiple of 128
// columns, and rows of w, scales and zeros can be copied 16 bytes at a time. Does not check the
// number of tokens.
bool FitsGroupedMatMul(const MatMulParams& p);
// Enqueues a product that fits: out has x's type. Reads w before its predecessor on the stream has
// ended, so no work that is still enqueued may write w.
void GroupedMatMul(const MatMulParams& p, const Device& device);

}  // namespace quire::cuda

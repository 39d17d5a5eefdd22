// GroupedMatMul: x * w^T for packed w (kernels/packed_row.h) and at most 16 tokens, in one read
// of the weights.
//
// k and the columns that share a scale alone fix the order of every sum. So a token's results have
// the same bits with any other tokens in the product, on any number of multiprocessors, and for any
// slice of 16 rows of w.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace quire::cuda {

inline constexpr int kMaxGroupedTokens = 16;

// Call once per process and device, before the first GroupedMatMul and outside a capture.
void PrepareGroupedMatMul();
// True if w is packed and has a multiple of 16 rows, its scales are shared by 32, 64 or a multiple
// of 128 columns, rows of x, w, scales and zeros can be copied 16 bytes at a time, and out has x's
// type, bf16 or f16. Does not check the number of tokens.
bool FitsGroupedMatMul(const MatMulParams& p);
// Enqueues a product that fits. Reads w before its predecessor on the stream has ended, so no work
// that is still enqueued may write w.
void GroupedMatMul(const MatMulParams& p, const Device& device);

}  // namespace quire::cuda

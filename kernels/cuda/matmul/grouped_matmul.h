// GroupedMatMul: x * w^T for packed w (kernels/packed_row.h), at the speed of reading the weights
// for at most 16 tokens, and in as many such reads as it takes for some more. ExpandPacked: rows of
// packed w as a matrix of x's type, for the products of many tokens.
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
// True if w is packed, scales are shared by 32, 64 or 128 columns or a multiple of those, and rows
// of x, w, scales and zeros can be read 16 bytes at a time. Does not check the number of tokens.
bool FitsGroupedMatMul(const MatMulParams& p);
// Enqueues a product that fits: out has x's type. Reads w before its predecessor on the stream has
// ended, so no work that is still enqueued may write w.
void GroupedMatMul(const MatMulParams& p, const Device& device);

// out[r, c] = the value of element (r, c) of w, rounded to out's type, bf16 or f16. w: [rows, k]
// with rows of 16-byte vectors, out: the same, dense.
void ExpandPacked(const TensorView& w, const TensorView& out, const Device& device);

}  // namespace quire::cuda

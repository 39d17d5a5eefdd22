// DigitMatMul: x * w^T for packed w (kernels/packed_row.h) and one or two tokens, at the speed of
// reading the weights: products of integers, of which an activation is four digits.
//
// k and the columns that share a scale alone fix every bit. So a token's results are the same with
// or without another token in the product, on any number of multiprocessors, and for any slice of
// 16 rows of w. An activation is rounded to 2^-26 of the largest of its 128 columns at most, which
// a product of floats would not do; a token with one that is no number has results that are none.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace quire::cuda {

inline constexpr int kMaxDigitTokens = 2;

// Call once per process and device, before the first DigitMatMul and outside a capture.
void PrepareDigitMatMul();
// Enqueues a product that fits GroupedMatMul (grouped_matmul.h). Reads w before its predecessor on
// the stream has ended, so no work that is still enqueued may write w.
void DigitMatMul(const MatMulParams& p, const Device& device);

}  // namespace quire::cuda

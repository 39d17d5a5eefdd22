// SkinnyMatMul: x * w^T for at most 16 tokens, at the speed of reading the weights.
//
// k alone fixes the order of every sum. So a token's results have the same bits with any other
// tokens in the product, on any number of multiprocessors, and for any slice of the rows of w.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace quire::cuda {

inline constexpr int kMaxSkinnyTokens = 16;

// Call once per process and device, before the first SkinnyMatMul and outside a capture.
void PrepareSkinnyMatMul();
// True if the rows of x and w can be read 16 bytes at a time. Does not check the number of tokens.
bool FitsSkinnyMatMul(const MatMulParams& p);
// Enqueues a product of 1 to kMaxSkinnyTokens tokens that fits. Reads w before its predecessor on
// the stream has ended, so no work that is still enqueued may write w.
void SkinnyMatMul(const MatMulParams& p, const Device& device);

}  // namespace quire::cuda

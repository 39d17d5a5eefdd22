// SkinnyMatMul: x * w^T for at most 16 tokens, at the speed at which the weights can be read.
//
// The order of every sum follows from k alone: a token's results are the same bits beside any other
// tokens, on any number of multiprocessors, and in any slice of the rows of w.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace quire::cuda {

inline constexpr int kMaxSkinnyTokens = 16;

// Once per process and device, before the first SkinnyMatMul and outside of a capture.
void PrepareSkinnyMatMul();
// Whether the rows of x and w can be read 16 bytes at a time. Says nothing of the number of tokens.
bool FitsSkinnyMatMul(const MatMulParams& p);
// Enqueues a product of 1 to kMaxSkinnyTokens tokens that fits. Reads w before its predecessor on
// the stream has ended: nothing that is still on its way may be writing it.
void SkinnyMatMul(const MatMulParams& p, const Device& device);

}  // namespace quire::cuda

// ExpandPacked: rows of packed weights (kernels/packed_row.h) as a matrix of 16-bit floats, for the
// products of many tokens.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/tensor.h"

namespace quire::cuda {

// out[r, c] = the value of element (r, c) of w, rounded to out's type, bf16 or f16. w: packed,
// [rows, k] with rows of 16-byte vectors, out: the same, dense. Enqueued on the device's stream.
void ExpandPacked(const TensorView& w, const TensorView& out, const Device& device);

}  // namespace quire::cuda

// MatMul: matrix products by SkinnyMatMul, or of packed weights DigitMatMul and GroupedMatMul, for
// few tokens, and otherwise by cuBLASLt or TileMatMul, whichever is faster by timing. The algorithm
// of a shape is chosen once and kept in a file, so that a machine gives the same bits after every
// start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace quire::cuda {

class MatMul {
 public:
  // Device bytes of `workspace`.
  static int64_t WorkspaceBytes();

  // `workspace` is device memory, 256-byte aligned, and must outlive this. An empty `cache_file`
  // keeps no choices.
  MatMul(const Device& device, void* workspace, const std::string& cache_file);
  ~MatMul();

  // Enqueues a product. x and w have one type: bf16 or f16, and then out has that type or f32; or
  // 8-bit, and then out has any of the three. w alone may be packed. The bias has out's type.
  //
  // The first product of a shape of weights times algorithms for its own number of tokens and all
  // smaller ones, so the largest step should come first. The search waits for the device and takes
  // free device memory while it runs. A capture times nothing: run every captured step once before
  // its capture, or it gets the library's first guess.
  //
  // Our own kernels read the weights before their predecessor on the stream has ended
  // (skinny_matmul.h, tile_matmul.h and those of packed/).
  void Run(const MatMulParams& p);
  // Writes the choices to the cache file if they changed. A file that cannot be written is reported
  // on stderr, and the next start times the algorithms again.
  void SaveChoices();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::cuda

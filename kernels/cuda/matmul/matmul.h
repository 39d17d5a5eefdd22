// MatMul: matrix products by cuBLASLt with algorithms chosen by timing, and by an own kernel for
// few tokens where that wins. Which algorithm a shape takes is decided once and kept in a file, so
// that the same machine gives the same bits from start to start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace quire::cuda {

class MatMul {
 public:
  // Device bytes that `workspace` must have.
  static int64_t WorkspaceBytes();

  // `workspace` is device memory, 256-byte aligned, and outlives this. `cache_file` may be empty.
  MatMul(const Device& device, void* workspace, const std::string& cache_file);
  ~MatMul();

  // Enqueues. x and w are of one type, bf16 or f16, out of that type or f32, a bias of out's type.
  //
  // The first product of some weights' shape chooses algorithms for its own number of tokens and
  // all smaller ones, so the largest step should come first; it waits for the device, and takes
  // some device memory for the time if there is any. Within a capture nothing is timed: run every
  // captured step once before, or it gets the library's first guess.
  //
  // Up to 16 tokens the weights are read before the predecessor on the stream has ended
  // (skinny_matmul.h).
  void Run(const MatMulParams& p);
  // Writes what was chosen to the cache file, if it changed; a file that cannot be written is
  // reported on stderr and costs the next start its time.
  void SaveChoices();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::cuda

// Communicator: the collectives of one rank on a CUDA device. Between ranks that reach each other's
// memory our own kernels exchange. Of more than two such ranks NCCL takes the sizes at which it was
// measured faster; between other ranks it exchanges everything. It is not loaded where it has
// nothing to do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/buffer.h"
#include "kernels/collectives.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/group/sum_choice.h"
#include "kernels/rank_exchange.h"

namespace quire::cuda {

struct CommunicatorOptions {
  RankPlace place;
  int32_t max_rows = 0;                     // of logits, in a step
  int32_t hidden = 0;                       // width of the sums
  std::string cache_file;                   // keeps the measured choices; empty: they are not kept
  SumMethod forced = SumMethod::kMeasured;  // for tests and benchmarks
};

class Communicator {
 public:
  // Every rank of the group makes the call, and each later one, in the same order. Null if the
  // ranks cannot reach each other; `why` gives the reason. Takes Bytes of the device, and NCCL up
  // to NcclBytes.
  static std::unique_ptr<Communicator> Create(const CommunicatorOptions& options,
                                              const Device& device, std::string* why);
  // For the memory plan: our own memory, and what NCCL may take, measured on H200 and rounded up.
  static int64_t Bytes(int32_t ranks, int32_t max_rows);
  static int64_t NcclBytes(const RankPlace& place);
  ~Communicator();

  // "peer memory and NCCL 2.28.9": for logs.
  std::string Describe() const;

  // As DeviceMemory::AllocateShared and Collectives.
  Buffer AllocateShared(size_t bytes);
  void AllReduceSum(const TensorView& x);
  void SumRmsNorm(const RmsNormParams& p);
  void ColumnsToRows(const TensorView& x, const TensorView& out);
  void ShareSamples(const ShareSamplesParams& p);

 private:
  struct State;
  explicit Communicator(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace quire::cuda

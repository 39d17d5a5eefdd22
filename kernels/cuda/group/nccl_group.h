// NcclGroup: the collectives through NCCL, for tensors that are too large for our own kernels and
// for ranks that do not reach each other's memory. NCCL is loaded when a group is created, so that
// one GPU needs none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/collectives.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/rank_exchange.h"

namespace quire::cuda {

class NcclGroup {
 public:
  // Every rank of the group makes the call. Null if NCCL is missing on any of them or cannot join
  // them; `why` gives the reason. `gathered` has room for ranks * MostRows results.
  static std::unique_ptr<NcclGroup> Create(const RankPlace& place, const Device& device,
                                           SampleResult* gathered, std::string* why);
  ~NcclGroup();

  // "2.28.9"
  std::string version() const;
  // As Collectives, for dense tensors of any type. They can be captured. A call that fails ends the
  // process: its communicator is lost.
  void AllReduceSum(const TensorView& x);
  void ColumnsToRows(const TensorView& x, const TensorView& out);
  void ShareSamples(const ShareSamplesParams& p);

 private:
  struct State;
  explicit NcclGroup(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace quire::cuda

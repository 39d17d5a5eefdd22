// GraphSet: the captured steps of one stream, by key. A captured step takes device memory for the
// driver's graph nodes alone: all tensors it uses were allocated before.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/cuda_backend.h"

namespace quire::cuda {

class GraphSet {
 public:
  // `stream` must outlive this. Destroy this only when the stream is idle.
  explicit GraphSet(cudaStream_t stream) : stream_(stream) {}
  ~GraphSet();
  GraphSet(const GraphSet&) = delete;
  GraphSet& operator=(const GraphSet&) = delete;

  // Captures what fn enqueues on the stream at the first call with `key`. Launches the capture.
  void Run(int64_t key, const std::function<void()>& fn);
  std::vector<GraphStats> stats() const;

 private:
  struct Graph {
    cudaGraphExec_t exec = nullptr;
    GraphStats stats;
  };
  Graph Capture(int64_t key, const std::function<void()>& fn);

  const cudaStream_t stream_;
  std::unordered_map<int64_t, Graph> graphs_;
};

}  // namespace quire::cuda

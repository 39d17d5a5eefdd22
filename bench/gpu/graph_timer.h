// GraphTimer: microseconds per kernel in a graph of many, as in a captured step, and the copy rate
// of this device.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/launch.h"

namespace quire::gpu {

class GraphTimer {
 public:
  GraphTimer() {
    CUDA_CHECK(cudaStreamCreateWithFlags(&device_.stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaDeviceGetAttribute(&device_.num_sms, cudaDevAttrMultiProcessorCount, 0));
    CUDA_CHECK(cudaEventCreate(&begin_));
    CUDA_CHECK(cudaEventCreate(&end_));
  }

  const cuda::Device& device() const { return device_; }

  // Median microseconds of `enqueue(i)`, i from 0 to count - 1, over several replays. The inputs of
  // all i together should be larger than the cache.
  double Microseconds(int count, const std::function<void(int)>& enqueue) const {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaStreamBeginCapture(device_.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < count; ++i) enqueue(i);
    CUDA_CHECK(cudaStreamEndCapture(device_.stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<float> times;
    for (int replay = 0; replay < 13; ++replay) {
      CUDA_CHECK(cudaEventRecord(begin_, device_.stream));
      CUDA_CHECK(cudaGraphLaunch(exec, device_.stream));
      CUDA_CHECK(cudaEventRecord(end_, device_.stream));
      CUDA_CHECK(cudaEventSynchronize(end_));
      float ms;
      CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
      if (replay >= 2) times.push_back(ms);
    }
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    CUDA_CHECK(cudaGraphDestroy(graph));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1000.0 / count;
  }

  // Bytes per second of a large copy, counting reads and writes.
  double CopyRate() const {
    constexpr size_t kBytes = size_t{2} << 30;
    char* data;
    CUDA_CHECK(cudaMalloc(&data, 2 * kBytes));
    CUDA_CHECK(cudaMemset(data, 1, 2 * kBytes));
    // Not in a graph, where a copy takes a slower engine.
    float best_ms = 1e9f;
    for (int i = 0; i < 5; ++i) {
      CUDA_CHECK(cudaEventRecord(begin_, device_.stream));
      CUDA_CHECK(
          cudaMemcpyAsync(data + kBytes, data, kBytes, cudaMemcpyDeviceToDevice, device_.stream));
      CUDA_CHECK(cudaEventRecord(end_, device_.stream));
      CUDA_CHECK(cudaEventSynchronize(end_));
      float ms;
      CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
      best_ms = std::min(best_ms, ms);
    }
    CUDA_CHECK(cudaFree(data));
    return 2.0 * kBytes / (best_ms * 1e-3);
  }

 private:
  cuda::Device device_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace quire::gpu

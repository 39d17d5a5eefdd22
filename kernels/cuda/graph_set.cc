// Captures, instantiates, uploads and replays graphs.
#include "kernels/cuda/graph_set.h"

#include <algorithm>
#include <chrono>

#include "kernels/check.h"
#include "kernels/cuda/device/check.h"

namespace quire::cuda {
namespace {

int64_t FreeBytes() {
  size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

}  // namespace

GraphSet::~GraphSet() {
  for (auto& [key, graph] : graphs_) cudaGraphExecDestroy(graph.exec);
}

void GraphSet::Run(int64_t key, const std::function<void()>& fn) {
  auto found = graphs_.find(key);
  if (found == graphs_.end()) found = graphs_.emplace(key, Capture(key, fn)).first;
  CUDA_CHECK(cudaGraphLaunch(found->second.exec, stream_));
  ++found->second.stats.replays;
}

GraphSet::Graph GraphSet::Capture(int64_t key, const std::function<void()>& fn) {
  CUDA_CHECK(cudaStreamSynchronize(stream_));
  const int64_t free_before = FreeBytes();
  const auto begin = std::chrono::steady_clock::now();
  cudaGraph_t captured = nullptr;
  Graph graph;
  // Thread-local: other threads may query the device during the capture, and this thread must not
  // synchronise.
  CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  fn();
  CUDA_CHECK(cudaStreamEndCapture(stream_, &captured));
  size_t nodes = 0;
  CUDA_CHECK(cudaGraphGetNodes(captured, nullptr, &nodes));
  CUDA_CHECK(cudaGraphInstantiate(&graph.exec, captured, 0));
  CUDA_CHECK(cudaGraphUpload(graph.exec, stream_));
  CUDA_CHECK(cudaStreamSynchronize(stream_));
  CUDA_CHECK(cudaGraphDestroy(captured));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  graph.stats = {.key = key,
                 .nodes = static_cast<int32_t>(nodes),
                 .capture_ms = took.count(),
                 .bytes = std::max<int64_t>(free_before - FreeBytes(), 0)};
  return graph;
}

std::vector<GraphStats> GraphSet::stats() const {
  std::vector<GraphStats> stats;
  for (const auto& [key, graph] : graphs_) stats.push_back(graph.stats);
  std::sort(stats.begin(), stats.end(),
            [](const GraphStats& a, const GraphStats& b) { return a.key < b.key; });
  return stats;
}

}  // namespace quire::cuda

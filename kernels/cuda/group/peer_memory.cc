// Allocations pass between processes by the driver's handles.
#include "kernels/cuda/group/peer_memory.h"

#include <cuda_runtime.h>

#include <cstring>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/check.h"

namespace quire::cuda {
namespace {

// An allocation below the driver's granularity shares its handle with others.
constexpr size_t kGranularity = size_t{2} << 20;

std::string Failed(const char* what, cudaError_t error) {
  cudaGetLastError();
  return std::string(what) + ": " + cudaGetErrorString(error);
}

}  // namespace

// Each round of shares is empty for a rank that has failed, so that all ranks stop together.
std::unique_ptr<PeerMemory> PeerMemory::Create(const RankPlace& place, size_t bytes,
                                               std::string* why) {
  CHECK(place.ranks <= kMaxPeers);
  std::unique_ptr<PeerMemory> memory(new PeerMemory(place.rank));
  const size_t size = RoundUp(bytes, kGranularity);
  void* own = nullptr;
  cudaIpcMemHandle_t handle{};
  cudaError_t error = cudaMalloc(&own, size);
  if (error == cudaSuccess) {
    memory->memory_[place.rank] = static_cast<std::byte*>(own);
    CUDA_CHECK(cudaMemset(own, 0, size));
    CUDA_CHECK(cudaDeviceSynchronize());
    error = cudaIpcGetMemHandle(&handle, own);
  }
  if (error != cudaSuccess) *why = Failed("memory that the ranks share", error);
  const std::string mine(reinterpret_cast<const char*>(&handle), sizeof handle);
  const std::vector<std::string> handles = place.exchange->Share(error == cudaSuccess ? mine : "");
  for (int32_t rank = 0; rank < place.ranks && error == cudaSuccess; ++rank) {
    if (rank == place.rank) continue;
    if (handles[rank].size() != sizeof handle) {
      *why = "rank " + std::to_string(rank) + " has no memory that the ranks share";
      error = cudaErrorUnknown;
      break;
    }
    std::memcpy(&handle, handles[rank].data(), sizeof handle);
    void* theirs = nullptr;
    error = cudaIpcOpenMemHandle(&theirs, handle, cudaIpcMemLazyEnablePeerAccess);
    memory->memory_[rank] = static_cast<std::byte*>(theirs);
    if (error != cudaSuccess) *why = Failed("reaching the memory of another GPU", error);
  }
  for (const std::string& each : place.exchange->Share(error == cudaSuccess ? "good" : "")) {
    if (!each.empty()) continue;
    if (why->empty()) *why = "another rank does not reach this rank's memory";
    return nullptr;
  }
  return memory;
}

PeerMemory::~PeerMemory() {
  for (size_t rank = 0; rank < memory_.size(); ++rank) {
    if (memory_[rank] == nullptr) continue;
    if (static_cast<int32_t>(rank) == rank_) {
      cudaFree(memory_[rank]);
    } else {
      cudaIpcCloseMemHandle(memory_[rank]);
    }
  }
}

}  // namespace quire::cuda

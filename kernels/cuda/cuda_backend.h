// CudaBackend: a Backend on one NVIDIA device (compute capability 9.0). All work is enqueued on one
// stream. Captured steps are CUDA graphs over memory that was allocated before, so a capture
// allocates no tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace quire {

struct CudaOptions {
  int ordinal = 0;
  RankPlace place;  // in the tensor-parallel group
  // The largest shapes of any step; they size the backend's own memory.
  int32_t max_tokens = 0;
  int32_t max_rows = 0;
  int32_t step_guesses = 0;  // draws of a step beyond one a row
  int64_t max_context = 0;   // tokens of one sequence
  int32_t num_heads = 0;     // Q, of this rank
  int32_t num_kv_heads = 0;  // K, of this rank
  int32_t head_dim = 0;
  bool capped = false;          // attention has a soft cap
  int32_t hidden = 0;           // width of the residual stream
  std::string sum_cache;        // file of the timed ways to sum over the ranks; empty: not kept
  std::string algorithm_cache;  // file of timed matrix product algorithms; empty: not kept
  bool dependent_launch = true;
  bool capture = true;  // off: RunCaptured calls the operations one by one
};

// The identity and memory of a device, before anything is loaded.
struct CudaDeviceInfo {
  std::string name;
  std::string uuid;
  int compute_capability = 0;  // 90
  int num_sms = 0;
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  std::string driver;  // version of the CUDA driver: "13.0"
};

// The cost of a captured step.
struct GraphStats {
  int64_t key = 0;
  int32_t nodes = 0;
  double capture_ms = 0;  // capture, instantiation and upload
  int64_t bytes = 0;      // device memory it took
  int64_t replays = 0;
};

// Null when this machine has no such device or this build does not support it; `why` then gives the
// reason in a sentence.
std::unique_ptr<CudaDeviceInfo> DescribeCudaDevice(int ordinal, std::string* why);
// Device bytes of the backend's own memory (attention's space, the workspace of matrix products,
// the exchange between ranks), for the memory plan.
int64_t CudaBackendBytes(const CudaOptions& options);

class CudaBackend : public Backend {
 public:
  // Null when the device cannot be used, lacks memory for the backend itself, or does not reach the
  // other ranks of its group; `why` gives the reason. Every rank of a group makes the call.
  static std::unique_ptr<CudaBackend> Create(const CudaOptions& options, std::string* why);

  // Device bytes of all Allocate calls and of the backend itself.
  virtual int64_t allocated_bytes() const = 0;
  // Ends start-up: from now on Allocate aborts, because service must take no device memory.
  virtual void Seal() = 0;
  virtual std::vector<GraphStats> graphs() const = 0;
  // The cudaStream_t of all work, for timing from outside.
  virtual void* stream() const = 0;
};

}  // namespace quire

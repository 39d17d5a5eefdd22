// CudaBackend: a Backend on one NVIDIA device (compute capability 9.0). Everything is enqueued on
// one stream; captured steps are graphs that share the memory planned before them, so capturing
// takes none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace quire {

struct CudaOptions {
  int ordinal = 0;
  int32_t ranks = 1;  // of the tensor-parallel group; Create refuses any other number
  // The largest shapes of any step: they size what operations work in.
  int32_t max_tokens = 0;
  int32_t max_rows = 0;
  int64_t max_context = 0;   // tokens of one sequence
  int32_t num_heads = 0;     // Q of this rank
  int32_t num_kv_heads = 0;  // K of this rank
  int32_t head_dim = 0;
  std::string algorithm_cache;  // file of timed matrix-product algorithms; empty: none is kept
  bool dependent_launch = true;
  bool capture = true;  // off: RunCaptured runs its steps one call at a time
};

// What a device is, before anything is loaded.
struct CudaDeviceInfo {
  std::string name;
  std::string uuid;
  int compute_capability = 0;  // 90
  int num_sms = 0;
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  std::string driver;  // of the CUDA driver, "13.0"
};

// What a captured step cost.
struct GraphStats {
  int64_t key = 0;
  int32_t nodes = 0;
  double capture_ms = 0;  // capture, instantiation and upload
  int64_t bytes = 0;      // device memory it took
  int64_t replays = 0;
};

// Null when this machine has no such device; `why` then says so in a sentence.
std::unique_ptr<CudaDeviceInfo> DescribeCudaDevice(int ordinal, std::string* why);
// Device bytes the backend itself takes (workspaces, attention and sampling space), for the memory
// plan.
int64_t CudaBackendBytes(const CudaOptions& options);

class CudaBackend : public Backend {
 public:
  // Null when memory for its own space is missing; `why` says how much.
  static std::unique_ptr<CudaBackend> Create(const CudaOptions& options, std::string* why);

  // Device bytes taken through Allocate and for the backend itself.
  virtual int64_t allocated_bytes() const = 0;
  // From now on Allocate aborts: nothing may take device memory in service.
  virtual void Seal() = 0;
  virtual std::vector<GraphStats> graphs() const = 0;
  // The cudaStream_t that everything is enqueued on, to be timed from outside.
  virtual void* stream() const = 0;
};

}  // namespace quire

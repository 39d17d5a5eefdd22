// Backend: one rank's device. One page between model code and hardware: memory, order, the
// operations of ops.h, and two collectives. Calls are enqueued in order; results are visible to the
// host after CopyToHost + Synchronize. A rank's Backend is used by that rank's thread only. Any
// device fault ends the process (faults are sticky and a restart is cheap).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/block_copier.h"
#include "kernels/buffer.h"
#include "kernels/ops.h"
#include "kernels/step_message.h"

namespace quire {

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu (AVX-512, 2 threads)": for logs and GetServerInfo.
  virtual std::string Describe() const = 0;
  // Zeroed device memory, 256-byte aligned; an empty Buffer when the device has too little,
  // counting what every backend of this process holds of it.
  virtual Buffer Allocate(size_t bytes) = 0;
  // Zeroed host memory that the device reads and writes in place, and copies at full speed.
  virtual Buffer AllocateHost(size_t bytes) = 0;
  virtual void CopyToDevice(void* device, const void* host, size_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* device, size_t bytes) = 0;
  // Within the device's memory; the two do not overlap. Not to be captured.
  virtual void CopyOnDevice(void* to, const void* from, size_t bytes) = 0;
  virtual void Synchronize() = 0;
  // A point in the order of calls; marks count up from 1.
  virtual uint64_t Mark() = 0;
  // Blocks until everything enqueued before the mark is done and visible to the host. The only call
  // that another thread may make, one at a time, for marks no more than 8 behind the newest.
  virtual void WaitFor(uint64_t mark) = 0;
  // Runs fn; a device with graphs captures it at the first call per key and replays it afterwards,
  // so fn must enqueue the same calls with the same arguments each time. Key 0 is never captured.
  virtual void RunCaptured(int64_t key, const std::function<void()>& fn) = 0;
  // Copies beside this order, by threads of their own. Takes no device memory.
  virtual std::unique_ptr<BlockCopier> MakeBlockCopier() = 0;
  // What is enqueued between the two goes by a name in profiles: "layer 3". Ranges nest. Without a
  // profiler they cost nothing worth counting, and in a replayed step nothing.
  virtual void BeginRange(const char* name, int64_t number) = 0;
  virtual void EndRange() = 0;

  virtual void BeginStep(const BeginStepParams&) = 0;
  virtual void EndStep(const EndStepParams&) = 0;
  virtual void FillUniform(const FillUniformParams&) = 0;
  // Once a step, before its first PagedAttention, with the params of any layer, and again before a
  // layer whose window is another: devices that divide the work by the lengths of the contexts do
  // it here, for all layers that follow.
  virtual void PlanAttention(const PagedAttentionParams&) = 0;

  virtual void Embed(const EmbedParams&) = 0;
  virtual void RmsNorm(const RmsNormParams&) = 0;
  virtual void MatMul(const MatMulParams&) = 0;
  virtual void RopeStoreKv(const RopeStoreKvParams&) = 0;
  virtual void PagedAttention(const PagedAttentionParams&) = 0;
  virtual void SiluMul(const SiluMulParams&) = 0;
  virtual void GatherRows(const GatherRowsParams&) = 0;
  virtual void Sample(const SampleParams&) = 0;

  // x = sum over ranks of x, added in rank order, so that every rank holds the same bits.
  virtual void AllReduceSum(TensorView x) = 0;
  // out[t] = concatenation over ranks of x[t]; x is [T, n], out is [T, n * ranks], x must not alias
  // out.
  virtual void AllGather(TensorView x, TensorView out) = 0;
};

// A range of a profile: as long as it lives.
class NamedRange {
 public:
  NamedRange(Backend& backend, const char* name, int64_t number) : backend_(backend) {
    backend_.BeginRange(name, number);
  }
  ~NamedRange() { backend_.EndRange(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  Backend& backend_;
};

// `ranks` backends over this machine's cores that share one collective group; each must be driven
// by its own thread. threads_total <= 0 takes all cores this process may use: of its affinity mask,
// as far as the quota of its control group goes.
std::vector<std::unique_ptr<Backend>> CreateCpuBackends(int ranks, int threads_total);

}  // namespace quire

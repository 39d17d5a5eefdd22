// The CPU backend. Every call completes before it returns, so order and visibility need no work.
#include "kernels/cpu/cpu_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cpu/block_copier.h"
#include "kernels/cpu/clock_profiler.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/group_collectives.h"
#include "kernels/cpu/host_limits.h"
#include "kernels/cpu/socket_group.h"
#include "kernels/cpu/thread_pool.h"

namespace quire {
namespace {

constexpr size_t kAlignment = 256;

// Bytes in the buffers of all backends. Pages take memory only when touched, so the system would
// grant more than it has and kill the process later. Reserve refuses what can never fit.
std::atomic<size_t> allocated{0};

bool Reserve(size_t bytes) {
  const size_t usable = cpu::UsableMemory();
  size_t before = allocated.load();
  do {
    if (before > usable || bytes > usable - before) return false;
  } while (!allocated.compare_exchange_weak(before, before + bytes));
  return true;
}

class CpuBackend final : public Backend {
 public:
  struct Threads {
    int count;
    bool may_spin;
    cpu::Isa isa;
  };

  // `group`: null for a group of one. `collectives` as in RankPlace.
  CpuBackend(std::unique_ptr<cpu::RankGroup> group, const Threads& threads,
             std::atomic<uint64_t>* collectives)
      : group_(std::move(group)),
        collectives_(collectives),
        pool_(threads.count, threads.may_spin),
        cores_{pool_, cpu::KernelsFor(threads.isa)} {}

  std::string Describe() const override {
    const int threads = pool_.threads();
    return std::string("cpu (") + Name(cores_.kernels.isa) + ", " + std::to_string(threads) +
           (threads == 1 ? " thread)" : " threads)");
  }

  Buffer Allocate(size_t bytes) override {
    if (bytes > std::numeric_limits<size_t>::max() - kAlignment) return Buffer();
    const size_t size = std::max<size_t>(RoundUp(bytes, kAlignment), 1);
    if (!Reserve(size)) return Buffer();
    // Anonymous mappings are zero, page-aligned, and cost memory only where touched.
    void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      allocated -= size;
      return Buffer();
    }
    madvise(data, size, MADV_HUGEPAGE);
    return Buffer(data, size, [](void* p, size_t n) {
      munmap(p, n);
      allocated -= n;
    });
  }

  Buffer AllocateHost(size_t bytes) override { return Allocate(bytes); }
  // Bytes for other ranks pass through the group's own memory.
  Buffer AllocateShared(size_t bytes) override { return Allocate(bytes); }
  void CopyToDevice(void* device, const void* host, size_t bytes) override {
    if (bytes != 0) std::memcpy(device, host, bytes);
  }
  void CopyToHost(void* host, const void* device, size_t bytes) override {
    if (bytes != 0) std::memcpy(host, device, bytes);
  }
  void CopyOnDevice(void* to, const void* from, size_t bytes) override {
    profiler_.Enter(StepPart::kCopies);
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void Synchronize() override {}
  uint64_t Mark() override { return ++marks_; }
  void WaitFor(uint64_t) override {}
  void RunCaptured(int64_t, const std::function<void()>& fn) override { fn(); }
  std::unique_ptr<BlockCopier> MakeBlockCopier() override {
    return std::make_unique<cpu::PlainBlockCopier>();
  }
  StepProfiler& profiler() override { return profiler_; }

  void BeginStep(const BeginStepParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::BeginStep(p);
  }
  void EndStep(const EndStepParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::EndStep(p);
  }
  void FillUniform(const FillUniformParams& p) override { cpu::FillUniform(p, cores_); }
  // Attention divides its work in every call.
  void PlanAttention(const PagedAttentionParams&) override {}
  void Embed(const EmbedParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::Embed(p, cores_);
  }
  void RmsNorm(const RmsNormParams& p) override {
    profiler_.Enter(StepPart::kNorms);
    cpu::RmsNorm(p, cores_);
  }
  void MatMul(const MatMulParams& p) override {
    profiler_.Enter(StepPart::kProducts);
    cpu::MatMul(p, cores_);
  }
  void RopeStoreKv(const RopeStoreKvParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::RopeStoreKv(p, cores_);
  }
  void PagedAttention(const PagedAttentionParams& p) override {
    profiler_.Enter(StepPart::kAttention);
    cpu::PagedAttention(p, cores_, attention_space_);
  }
  void SiluMul(const SiluMulParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::SiluMul(p, cores_);
  }
  void Quantize(const QuantizeParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::Quantize(p, cores_);
  }
  void GatherRows(const GatherRowsParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::GatherRows(p, cores_);
  }
  void LayerNorm(const LayerNormParams& p) override {
    profiler_.Enter(StepPart::kNorms);
    cpu::LayerNorm(p, cores_);
  }
  void AddScaled(const AddScaledParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::AddScaled(p, cores_);
  }
  void Scale(const ScaleParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::Scale(p, cores_);
  }
  void Gelu(const GeluParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::Gelu(p, cores_);
  }
  void GatherColumns(const GatherColumnsParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::GatherColumns(p, cores_);
  }
  void Sample(const SampleParams& p) override {
    profiler_.Enter(StepPart::kSampling);
    cpu::Sample(p, cores_);
  }
  void Score(const ScoreParams& p) override {
    profiler_.Enter(StepPart::kSampling);
    cpu::Score(p, cores_);
  }
  void Pool(const PoolParams& p) override {
    profiler_.Enter(StepPart::kElementwise);
    cpu::Pool(p, cores_);
  }

  RankOf group() const override {
    return group_ == nullptr ? RankOf{} : RankOf{group_->rank(), group_->ranks()};
  }
  void AllReduceSum(TensorView x) override {
    if (Begin()) cpu::AllReduceSum(x, *group_);
  }
  // The norm is no part of the exchange here, as it is on a device that does both in one.
  void SumRmsNorm(const RmsNormParams& p) override {
    AllReduceSum(p.x);
    RmsNorm(p);
  }
  void ColumnsToRows(TensorView x, TensorView out) override {
    if (Begin()) return cpu::ColumnsToRows(x, out, *group_);
    CHECK(x.dim == out.dim);
    std::memcpy(out.data, x.data, static_cast<size_t>(x.bytes()));
  }
  void ShareSamples(const ShareSamplesParams& p) override {
    if (Begin()) cpu::ShareSamples(p, *group_);
  }

 private:
  // False in a group of one, which has nothing to exchange.
  bool Begin() {
    if (group_ == nullptr) return false;
    profiler_.Enter(StepPart::kCollectives);
    if (collectives_ != nullptr) collectives_->fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  const std::unique_ptr<cpu::RankGroup> group_;
  std::atomic<uint64_t>* const collectives_;
  cpu::ThreadPool pool_;
  const cpu::Cores cores_;
  cpu::AttentionSpace attention_space_;
  cpu::ClockProfiler profiler_;
  uint64_t marks_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Backend>> CreateCpuBackends(const CpuOptions& options) {
  CHECK_GE(options.ranks, 1);
  const int cores = cpu::UsableCores();
  const int total = options.threads_total > 0 ? options.threads_total : cores;
  const int threads = std::max(1, total / options.ranks);
  const bool may_spin = options.ranks * threads <= cores;
  std::vector<std::unique_ptr<cpu::RankGroup>> group(1);
  if (options.ranks > 1) group = cpu::JoinThreads(options.ranks, may_spin);
  std::vector<std::unique_ptr<Backend>> backends;
  for (std::unique_ptr<cpu::RankGroup>& place : group) {
    backends.push_back(std::make_unique<CpuBackend>(
        std::move(place), CpuBackend::Threads{threads, may_spin, options.isa}, nullptr));
  }
  return backends;
}

std::vector<std::unique_ptr<Backend>> CreateCpuBackends(int ranks, int threads_total) {
  return CreateCpuBackends(CpuOptions{.ranks = ranks, .threads_total = threads_total});
}

std::unique_ptr<Backend> CreateCpuBackend(const RankPlace& place, int threads, std::string* why) {
  const int cores = cpu::UsableCores();
  const int count = threads > 0 ? threads : std::max(1, cores / place.ranks);
  const bool may_spin = place.ranks * count <= cores;
  std::unique_ptr<cpu::RankGroup> group;
  if (place.ranks > 1) {
    group =
        place.one_host ? cpu::JoinProcesses(place, may_spin, why) : cpu::JoinSockets(place, why);
    if (group == nullptr) return nullptr;
  }
  return std::make_unique<CpuBackend>(
      std::move(group), CpuBackend::Threads{count, may_spin, cpu::BestIsa()}, place.collectives);
}

}  // namespace quire

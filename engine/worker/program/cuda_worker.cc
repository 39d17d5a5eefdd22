// Start-up order of a rank on a GPU: context, own space, weights, KV pool, tables, first steps,
// graphs, seal.
#include "engine/worker/program/cuda_worker.h"

#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

double SecondsSince(int64_t begin_ns) {
  return static_cast<double>(SteadyNowNs() - begin_ns) * 1e-9;
}

}  // namespace

CudaOptions CudaOptionsFor(const WorkerSpec& spec, const RankPlace& place, int ordinal,
                           const std::string& cache_dir) {
  CudaOptions options{.ordinal = ordinal,
                      .place = place,
                      .max_tokens = spec.worker.max_num_batched_tokens,
                      .max_rows = spec.worker.max_num_seqs + 1,
                      .step_guesses = spec.worker.step_guesses,
                      .max_context = spec.worker.max_model_len,
                      .num_heads = static_cast<int32_t>(Shard(spec.model.num_heads, spec.tp).count),
                      .num_kv_heads = spec.kv_layout.num_kv_heads,
                      .head_dim = spec.kv_layout.head_dim,
                      .capped = spec.model.facts.attention_soft_cap > 0,
                      .hidden = spec.model.hidden_size};
  if (cache_dir.empty()) return options;
  // Ranks time their algorithms side by side, each into a file of its own.
  const std::string of_rank =
      spec.tp.size == 1 ? ""
                        : "." + std::to_string(spec.tp.rank) + "of" + std::to_string(spec.tp.size);
  options.algorithm_cache = cache_dir + "/matmul_algorithms" + of_rank;
  options.sum_cache = cache_dir + "/sum_methods";
  return options;
}

absl::StatusOr<std::unique_ptr<Worker>> MakeCudaWorker(const WorkerSpec& spec,
                                                       const CudaOptions& options,
                                                       CudaWorkerReport* report,
                                                       std::shared_ptr<HostArena> arena) {
  std::string why;
  const std::unique_ptr<CudaDeviceInfo> before = DescribeCudaDevice(options.ordinal, &why);
  if (before == nullptr) return absl::UnavailableError(why);
  std::unique_ptr<CudaBackend> created = CudaBackend::Create(options, &why);
  if (created == nullptr) return absl::ResourceExhaustedError(why);
  CudaBackend& backend = *created;
  int64_t begin_ns = SteadyNowNs();
  ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker,
                   MakeWorker(spec, std::move(created), std::move(arena)));
  report->load_seconds = SecondsSince(begin_ns);
  begin_ns = SteadyNowNs();
  worker->WarmUp();
  backend.Seal();
  report->warm_seconds = SecondsSince(begin_ns);
  const std::unique_ptr<CudaDeviceInfo> after = DescribeCudaDevice(options.ordinal, &why);
  if (after == nullptr) return absl::UnavailableError(why);
  report->device = *before;
  report->graphs = backend.graphs();
  report->planned_bytes = backend.allocated_bytes();
  report->measured_bytes = before->free_bytes - after->free_bytes;
  return worker;
}

}  // namespace quire

// The order in which a worker takes its memory.
#include "engine/worker/worker_spec.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace quire {

absl::StatusOr<std::unique_ptr<Worker>> MakeWorker(const WorkerSpec& spec,
                                                   std::unique_ptr<Backend> backend,
                                                   std::shared_ptr<HostArena> arena) {
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                   LoadModel(spec.model_dir, spec.model, spec.tp, spec.model_options, *backend));
  ASSIGN_OR_RETURN(KvCache cache, KvCache::Create(*backend, spec.kv_layout, spec.num_blocks));
  ASSIGN_OR_RETURN(
      std::unique_ptr<Worker> worker,
      Worker::Create(spec.worker, std::move(backend), std::move(model), std::move(cache)));
  if (arena != nullptr) worker->CopyTo(std::move(arena), spec.kv_checksum);
  return worker;
}

}  // namespace quire

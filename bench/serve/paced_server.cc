// A worker that only waits, and the server around it.
#include "bench/serve/paced_server.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/worker/fake/null_worker.h"
#include "engine/worker/in_process_transport.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr int32_t kBlockSize = 16;

// A NullWorker whose steps take a given time, as a device's would. Its step runs from the end of
// the one before: a late start delays all later steps.
class PacedWorker final : public StepRunner {
 public:
  PacedWorker(int32_t vocab_size, const std::atomic<int64_t>* step_ns, int64_t token_ns)
      : worker_(vocab_size), step_ns_(step_ns), token_ns_(token_ns) {}
  void Run(const StepPlan& plan, StepResult& result) override {
    const int64_t step_ns = step_ns_->load() + plan.num_tokens * token_ns_;
    if (step_ns > 0 && !plan.shutdown) {
      next_ns_ = std::max(next_ns_ + step_ns, SteadyNowNs());
      std::this_thread::sleep_until(
          std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next_ns_)));
    }
    worker_.Run(plan, result);
  }

 private:
  NullWorker worker_;
  const std::atomic<int64_t>* const step_ns_;
  const int64_t token_ns_;
  int64_t next_ns_ = 0;
};

}  // namespace

PacedServer::PacedServer(const PacedServerOptions& options)
    : options_(options), step_ns_(options.step_ns) {
  auto tokenizer = Tokenizer::Load(QUIRE_SOURCE_DIR "/models/demo/tokenizer.json");
  CHECK(tokenizer.ok());
  model_.name = "null";
  model_.device_description = "null worker";
  model_.tokenizer = std::move(tokenizer).value();
  // A whole context for every stream, so that none is preempted.
  const int32_t blocks = 1 + options.num_streams * (options.max_model_len / kBlockSize + 1);
  EngineSetup& setup = model_.setup;
  setup.model.architecture = "NullForCausalLM";
  setup.model.vocab_size = model_.tokenizer->size();
  setup.config.max_num_seqs = options.num_streams;
  setup.memory.num_blocks = blocks;
  setup.memory.block_size = kBlockSize;
  setup.scheduler = {.num_blocks = blocks,
                     .block_size = kBlockSize,
                     .max_model_len = options.max_model_len,
                     .max_num_seqs = options.num_streams,
                     .max_num_batched_tokens = options.num_streams + options.num_prefill_tokens,
                     .max_num_queued_reqs = options.num_queued};
  setup.limits = {.max_num_queued_reqs = options.num_queued,
                  .max_num_queued_tokens = int64_t{options.num_queued} * options.max_model_len,
                  .max_model_len = options.max_model_len};
  metrics_ = std::make_unique<ServerMetrics>(model_.name);
  front_ = GrpcFront::Create(options_.front, &model_, metrics_.get());
  std::vector<std::unique_ptr<StepRunner>> runners;
  runners.push_back(
      std::make_unique<PacedWorker>(setup.model.vocab_size, &step_ns_, options.token_ns));
  engine_ = std::make_unique<Engine>(setup.scheduler, setup.limits,
                                     std::make_unique<InProcessTransport>(std::move(runners), 2),
                                     front_.get(), /*graph_sizes=*/std::vector<int32_t>());
}

PacedServer::~PacedServer() {
  admin_.reset();
  front_->Shutdown(5);
  engine_.reset();
}

absl::Status PacedServer::Start() {
  if (options_.metrics_port >= 0) {
    auto admin = AdminHttp::Start({.port = options_.metrics_port}, [this](std::string_view path) {
      if (path != "/metrics") return AdminPage{.status = 404, .body = "only /metrics\n"};
      return AdminPage{.body = metrics_->Serialize(engine_->Stats())};
    });
    if (!admin.ok()) return admin.status();
    admin_ = *std::move(admin);
  }
  if (absl::Status status = front_->Start(engine_.get()); !status.ok()) return status;
  front_->SetServing(true);
  return absl::OkStatus();
}

void PacedServer::Tick() {
  if (admin_ != nullptr) admin_->CloseStale(SteadyNowNs());
}

}  // namespace quire

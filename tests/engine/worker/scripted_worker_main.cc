// A worker program for tests: its "devices" are ways to behave, and its tokens are positions.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "engine/worker/copy/pool_copies.h"
#include "engine/worker/program/worker_program.h"
#include "engine/worker/rank/run_pipeline.h"

namespace quire {
namespace {

// Samples the position itself. Dies before the step of that number, if it is not 0.
class PositionRunner : public StepRunner {
 public:
  explicit PositionRunner(uint64_t last_step, uint64_t checksum_at = 0, int32_t rank = 0)
      : last_step_(last_step), checksum_at_(checksum_at), rank_(rank) {}
  void Run(const StepPlan& plan, StepResult& result) override {
    if (plan.step == last_step_) {
      std::fprintf(stderr, "the device fell off the bus\n");
      std::abort();
    }
    result.step = plan.step;
    result.checksum = plan.step == checksum_at_ ? static_cast<uint64_t>(rank_) : 0;
    result.samples.clear();
    for (const RowWork& work : plan.work) {
      if (work.sample) result.samples.push_back({work.row, {.token = work.start + work.count}});
    }
  }

 private:
  const uint64_t last_step_;
  const uint64_t checksum_at_;
  const int32_t rank_;
};

// How a copy ends, and which: the first load or the second store.
enum class Trouble { kNone, kStoreDies, kStoreHangs, kStoreLies, kLoadHangs };

// A real pool, whose copies are real too but for one.
class MisledCopies final : public CopyRunner {
 public:
  MisledCopies(const WorkerOrder& order, Trouble trouble)
      : cache_(*KvCache::Create(*backend_, order.spec.kv_layout, order.spec.num_blocks)),
        arena_(order.arena),
        trouble_(trouble),
        inner_(cache_, order.arena, backend_->MakeBlockCopier(), order.spec.kv_checksum) {}
  int64_t block_bytes() const override { return inner_.block_bytes(); }
  void Begin(CopyDirection direction, std::span<const BlockCopy> copies) override {
    if (direction == CopyDirection::kStore && ++stores_ == 2) page_ = copies.front().page;
    inner_.Begin(direction, copies);
  }
  Outcome Finish(CopyDirection direction) override {
    const Outcome outcome = inner_.Finish(direction);
    if (direction == CopyDirection::kLoad) {
      while (trouble_ == Trouble::kLoadHangs) pause();
      return outcome;
    }
    if (stores_ != 2) return outcome;
    if (trouble_ == Trouble::kStoreDies) Die();
    while (trouble_ == Trouble::kStoreHangs) pause();
    if (trouble_ == Trouble::kStoreLies) {
      std::thread([this] { ScribbleForEver(); }).detach();
      return {CopyStatus::kOk, 99};
    }
    return outcome;
  }

 private:
  // Half of the page is there, and half is not.
  void Die() {
    const std::span<std::byte> page = arena_->page(page_);
    std::fill(page.begin() + page.size() / 2, page.end(), std::byte{0});
    raise(SIGKILL);
  }
  void ScribbleForEver() {
    for (unsigned char value = 0;; ++value) {
      for (std::byte& byte : arena_->page(page_)) byte = std::byte{value};
    }
  }

  const std::unique_ptr<Backend> backend_ = std::move(CreateCpuBackends(1, 1)[0]);
  const KvCache cache_;
  const std::shared_ptr<HostArena> arena_;
  const Trouble trouble_;
  PoolCopies inner_;
  int stores_ = 0;
  PageId page_ = kNoPage;
};

class CopyingRunner final : public PositionRunner {
 public:
  CopyingRunner(const WorkerOrder& order, Trouble trouble)
      : PositionRunner(0), copies_(order, trouble) {}
  CopyRunner* copies() override { return &copies_; }

 private:
  MisledCopies copies_;
};

// The numbers of all open descriptors.
std::string OpenDescriptors() {
  std::string numbers;
  DIR* dir = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(dir)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(dir)) numbers += std::to_string(fd) + " ";
  }
  closedir(dir);
  return numbers;
}

absl::StatusOr<DeviceFacts> Describe(const WorkerOrder& order) {
  return DeviceFacts{.kind = order.device,
                     .name = OpenDescriptors(),
                     .total_bytes = 1000,
                     .free_bytes = 900 - order.spec.tp.rank};
}

absl::StatusOr<DeviceFacts> DescribeNothing(const WorkerOrder&) {
  return absl::UnavailableError("there is no such device here");
}

absl::StatusOr<DeviceFacts> DieDescribing(const WorkerOrder&) {
  std::fprintf(stderr, "first line\nno license for this device");
  _exit(7);
}

absl::StatusOr<DeviceFacts> HangDescribing(const WorkerOrder&) {
  for (;;) pause();
}

template <uint64_t kLastStep, uint64_t kDisagreeAt = 0>
absl::StatusOr<std::unique_ptr<StepPipeline>> Make(const WorkerOrder& order, WorkerReport* report) {
  report->description = "scripted";
  report->memory = {{"weights", 12345}};
  report->seconds = {{"load", 0.5}};
  report->graphs = {{.size = 8, .nodes = 300, .capture_ms = 1.5, .bytes = 4096}};
  return std::make_unique<RunPipeline>(
      std::make_unique<PositionRunner>(kLastStep, kDisagreeAt, order.spec.tp.rank),
      order.spec.worker.steps_in_flight);
}

template <Trouble kTrouble>
absl::StatusOr<std::unique_ptr<StepPipeline>> MakeCopying(const WorkerOrder& order, WorkerReport*) {
  return std::make_unique<RunPipeline>(std::make_unique<CopyingRunner>(order, kTrouble),
                                       order.spec.worker.steps_in_flight);
}

absl::StatusOr<std::unique_ptr<StepPipeline>> MakeNothing(const WorkerOrder&, WorkerReport*) {
  return absl::ResourceExhaustedError("the device has no room for 12345 bytes of weights");
}

absl::StatusOr<std::unique_ptr<StepPipeline>> Chatter(const WorkerOrder& order,
                                                      WorkerReport* report) {
  // More than a pipe holds: the worker must not wait for the reader of its output.
  for (int i = 0; i < 4000; ++i) std::fprintf(stderr, "loading tensor number %d of many\n", i);
  return Make<0>(order, report);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  using namespace quire;
  const std::array devices = {
      WorkerDevice{"steady", Describe, Make<0>},
      WorkerDevice{"cuda", Describe, Make<0>},
      WorkerDevice{"dies-at-step-20", Describe, Make<20>},
      WorkerDevice{"disagrees-at-step-20", Describe, Make<0, 20>},
      WorkerDevice{"copies", Describe, MakeCopying<Trouble::kNone>},
      WorkerDevice{"dies-in-store-2", Describe, MakeCopying<Trouble::kStoreDies>},
      WorkerDevice{"hangs-in-store-2", Describe, MakeCopying<Trouble::kStoreHangs>},
      WorkerDevice{"lies-about-store-2", Describe, MakeCopying<Trouble::kStoreLies>},
      WorkerDevice{"hangs-in-load", Describe, MakeCopying<Trouble::kLoadHangs>},
      WorkerDevice{"absent", DescribeNothing, Make<0>},
      WorkerDevice{"dies-describing", DieDescribing, Make<0>},
      WorkerDevice{"hangs-describing", HangDescribing, Make<0>},
      WorkerDevice{"too-small", Describe, MakeNothing},
      WorkerDevice{"chatters", Describe, Chatter},
  };
  return RunWorkerProgram(argc, argv, devices, "");
}

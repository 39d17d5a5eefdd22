// A worker program for tests: its "devices" are ways to behave, and its tokens are positions.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "engine/worker/copy/pool_copies.h"
#include "engine/worker/program/worker_program.h"
#include "engine/worker/rank/run_pipeline.h"

namespace quire {
namespace {

// How a runner misbehaves, and at which step.
enum class Lie { kNone, kDies, kOtherGraph, kOtherToken, kHangs };
struct Mischief {
  Lie lie = Lie::kNone;
  uint64_t step = 0;
  int32_t rank = 0;
  std::atomic<uint64_t>* collectives = nullptr;
};

// Samples the position itself.
class PositionRunner : public StepRunner {
 public:
  explicit PositionRunner(const Mischief& mischief) : mischief_(mischief) {}
  void Run(const StepPlan& plan, StepResult& result) override {
    const Lie lie = plan.step == mischief_.step ? mischief_.lie : Lie::kNone;
    if (lie == Lie::kDies) {
      std::fprintf(stderr, "the device fell off the bus\n");
      std::abort();
    }
    if (lie == Lie::kHangs) Hang();
    const bool lies = lie == Lie::kOtherGraph || lie == Lie::kOtherToken;
    result.step = plan.step;
    result.checksum = lies ? static_cast<uint64_t>(mischief_.rank) : 0;
    result.samples.clear();
    for (const RowWork& work : plan.work) {
      for (int32_t i = work.sample - 1; i >= 0; --i) {
        result.samples.push_back({work.row, {.token = work.start + work.count - i}});
      }
      if (work.sample && lie == Lie::kOtherToken) {
        result.samples.back().result.token += mischief_.rank;
      }
    }
  }

 private:
  // Rank 0 waits in its fifth collective for the rank that is in its third.
  [[noreturn]] void Hang() {
    mischief_.collectives->fetch_add(mischief_.rank == 0 ? 5 : 3);
    for (;;) pause();
  }

  const Mischief mischief_;
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

class RunnerWithoutBoard final : public PositionRunner {
 public:
  RunnerWithoutBoard() : PositionRunner(Mischief{}) {}
  bool AttachMasks(const MaskBoard&) override { return false; }
};

class CopyingRunner final : public PositionRunner {
 public:
  CopyingRunner(const WorkerOrder& order, Trouble trouble)
      : PositionRunner(Mischief{}), copies_(order, trouble) {}
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
                     .free_bytes = 900 - order.spec.tp.rank,
                     .uuid = "GPU-" + std::to_string(order.spec.tp.rank)};
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

absl::StatusOr<DeviceFacts> HangDescribingOnRank1(const WorkerOrder& order) {
  return order.spec.tp.rank == 1 ? HangDescribing(order) : Describe(order);
}

template <Lie kLie>
absl::StatusOr<std::unique_ptr<StepPipeline>> Make(const WorkerOrder& order, WorkerReport* report) {
  report->description = "scripted";
  report->memory = {{"weights", 12345}};
  report->seconds = {{"load", 0.5}};
  report->graphs = {{.size = 8, .nodes = 300, .capture_ms = 1.5, .bytes = 4096}};
  const Mischief mischief{
      .lie = kLie, .step = 20, .rank = order.spec.tp.rank, .collectives = order.place.collectives};
  return std::make_unique<RunPipeline>(std::make_unique<PositionRunner>(mischief),
                                       order.spec.worker.steps_in_flight);
}

// Two rounds of shares, of which rank 1 takes part in the first `kRounds`; then it hangs.
template <int kRounds>
absl::StatusOr<std::unique_ptr<StepPipeline>> HangSharing(const WorkerOrder& order,
                                                          WorkerReport* report) {
  for (int round = 0; round < 2; ++round) {
    while (order.spec.tp.rank == 1 && round == kRounds) pause();
    order.place.exchange->Share("bytes");
  }
  while (order.spec.tp.rank == 1) pause();
  return Make<Lie::kNone>(order, report);
}

absl::StatusOr<std::unique_ptr<StepPipeline>> HangInCollective(const WorkerOrder& order,
                                                               WorkerReport*) {
  order.place.collectives->fetch_add(order.spec.tp.rank == 1 ? 3 : 4);
  for (;;) pause();
}

// Rank 1 makes one exchange less than the others.
absl::StatusOr<std::unique_ptr<StepPipeline>> ShareLess(const WorkerOrder& order,
                                                        WorkerReport* report) {
  if (order.spec.tp.rank != 1) order.place.exchange->Share("bytes");
  return Make<Lie::kNone>(order, report);
}

template <Trouble kTrouble>
absl::StatusOr<std::unique_ptr<StepPipeline>> MakeCopying(const WorkerOrder& order, WorkerReport*) {
  return std::make_unique<RunPipeline>(std::make_unique<CopyingRunner>(order, kTrouble),
                                       order.spec.worker.steps_in_flight);
}

absl::StatusOr<std::unique_ptr<StepPipeline>> MakeWithoutBoardOnRank1(const WorkerOrder& order,
                                                                      WorkerReport* report) {
  if (order.spec.tp.rank != 1) return Make<Lie::kNone>(order, report);
  return std::make_unique<RunPipeline>(std::make_unique<RunnerWithoutBoard>(),
                                       order.spec.worker.steps_in_flight);
}

absl::StatusOr<std::unique_ptr<StepPipeline>> MakeNothing(const WorkerOrder&, WorkerReport*) {
  return absl::ResourceExhaustedError("the device has no room for 12345 bytes of weights");
}

absl::StatusOr<std::unique_ptr<StepPipeline>> Chatter(const WorkerOrder& order,
                                                      WorkerReport* report) {
  // More than a pipe holds: the worker must not wait for the reader of its output.
  for (int i = 0; i < 4000; ++i) std::fprintf(stderr, "loading tensor number %d of many\n", i);
  return Make<Lie::kNone>(order, report);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  using namespace quire;
  const std::array devices = {
      WorkerDevice{"steady", Describe, Make<Lie::kNone>},
      WorkerDevice{"cuda", Describe, Make<Lie::kNone>},
      WorkerDevice{"dies-at-step-20", Describe, Make<Lie::kDies>},
      WorkerDevice{"disagrees-at-step-20", Describe, Make<Lie::kOtherGraph>},
      WorkerDevice{"draws-otherwise-at-step-20", Describe, Make<Lie::kOtherToken>},
      WorkerDevice{"hangs-at-step-20", Describe, Make<Lie::kHangs>},
      WorkerDevice{"rank-1-hangs-describing", HangDescribingOnRank1, Make<Lie::kNone>},
      WorkerDevice{"rank-1-hangs-loading", Describe, HangSharing<0>},
      WorkerDevice{"rank-1-hangs-sharing", Describe, HangSharing<1>},
      WorkerDevice{"rank-1-hangs-before-ready", Describe, HangSharing<2>},
      WorkerDevice{"rank-1-hangs-in-a-collective", Describe, HangInCollective},
      WorkerDevice{"rank-1-shares-less", Describe, ShareLess},
      WorkerDevice{"rank-1-reads-no-board", Describe, MakeWithoutBoardOnRank1},
      WorkerDevice{"copies", Describe, MakeCopying<Trouble::kNone>},
      WorkerDevice{"dies-in-store-2", Describe, MakeCopying<Trouble::kStoreDies>},
      WorkerDevice{"hangs-in-store-2", Describe, MakeCopying<Trouble::kStoreHangs>},
      WorkerDevice{"lies-about-store-2", Describe, MakeCopying<Trouble::kStoreLies>},
      WorkerDevice{"hangs-in-load", Describe, MakeCopying<Trouble::kLoadHangs>},
      WorkerDevice{"absent", DescribeNothing, Make<Lie::kNone>},
      WorkerDevice{"dies-describing", DieDescribing, Make<Lie::kNone>},
      WorkerDevice{"hangs-describing", HangDescribing, Make<Lie::kNone>},
      WorkerDevice{"too-small", Describe, MakeNothing},
      WorkerDevice{"chatters", Describe, Chatter},
  };
  return RunWorkerProgram(argc, argv, devices, "");
}
